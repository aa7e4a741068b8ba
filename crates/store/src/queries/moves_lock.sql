-- moves_lock: a queue shard's lease, which stays as it is until the commit.
SELECT shard_id, lease_id, epoch FROM queue_shards
WHERE shard_id = $1
{postgres FOR NO KEY UPDATE}
