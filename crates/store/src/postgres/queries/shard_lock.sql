-- shard_lock: the first statement of a takeover: waits for commits of the owner before, and for whoever posts to the shard and
-- holds its row so that no takeover comes between.
SELECT shard_id FROM queue_shards
WHERE shard_id = $1
FOR UPDATE
