-- shards_insert: makes the queue shards' rows, once. Nobody owns them yet.
INSERT INTO queue_shards (shard_id, owner, lease_id, epoch, seq)
SELECT shard_id, '', $1, 0, 0
FROM unnest($2::int[])
    AS new (shard_id)
ON CONFLICT (shard_id) DO NOTHING
