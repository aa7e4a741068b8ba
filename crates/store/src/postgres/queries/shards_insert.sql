-- shards_insert: makes queue shards' rows, once. Nobody owns them yet.
INSERT INTO queue_shards (shard_id, owner, lease_id, epoch, seq, pause)
SELECT shard_id, '', $1, 0, 0, $2
FROM unnest($3::int[])
    AS new (shard_id)
ON CONFLICT (shard_id) DO NOTHING
