-- leases: all shards' rows.
-- cold: every process looks at all of them, once a heartbeat.
SELECT shard_id, owner, lease_id, epoch FROM queue_shards
ORDER BY shard_id
