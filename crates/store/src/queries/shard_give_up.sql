-- shard_give_up: gives a shard up. The fresh lease fences what the former owner may still have under way.
UPDATE queue_shards SET owner = '', lease_id = $3
WHERE shard_id = $1 AND lease_id = $2
