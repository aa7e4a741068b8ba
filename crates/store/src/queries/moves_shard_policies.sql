-- moves_shard_policies: policies that move, as their shard knows them.
UPDATE shard_policies SET shard_id = $2
WHERE shard_id = $1 AND policy_uid {in uuid $3}
