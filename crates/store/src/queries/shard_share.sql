-- shard_share: whether a shard has not changed hands; it does not until the end of the transaction.
SELECT shard_id FROM queue_shards WHERE shard_id = $1 AND lease_id = $2 {postgres FOR KEY SHARE}
