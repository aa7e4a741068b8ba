-- fence: the first statement of every transaction of an owner: no row means that somebody else owns the
-- shard.
UPDATE queue_shards SET seq = seq + 1
WHERE shard_id = $1 AND lease_id = $2
