-- shard_pause_hold: the shard's own pause, which stays as it is until the commit: its owner's commits wait.
SELECT pause FROM queue_shards
WHERE shard_id = $1
{postgres FOR NO KEY UPDATE}
