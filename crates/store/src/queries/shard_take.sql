-- shard_take: takes a shard over, if its row is still as it was seen.
UPDATE queue_shards SET owner = $4, lease_id = $5, epoch = epoch + 1
WHERE shard_id = $1 AND lease_id = $2 AND epoch = $3
