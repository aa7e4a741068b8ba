-- shard_pause_read: the shard's own pause.
SELECT pause FROM queue_shards WHERE shard_id = $1
