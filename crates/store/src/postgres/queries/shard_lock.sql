-- shard_lock: whoever takes a shard over waits for what is being posted under its lease, and the other way round.
SELECT shard_id FROM queue_shards WHERE shard_id = $1 FOR UPDATE
