-- fence: the first statement of every transaction of an owner: no row means that somebody else owns the
-- shard. It locks the row and leaves it as it is: old versions of it would pile up while a snapshot is held.
SELECT shard_id FROM queue_shards
WHERE shard_id = $1 AND lease_id = $2
FOR NO KEY UPDATE
