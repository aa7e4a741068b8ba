-- lease: one shard's row.
SELECT shard_id, owner, lease_id, epoch FROM queue_shards
WHERE shard_id = $1
