-- shard_pause_write: the shard is paused, or goes on.
UPDATE queue_shards SET pause = $2 WHERE shard_id = $1
