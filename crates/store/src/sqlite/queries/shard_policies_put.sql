-- shard_policies_put: policies as the shard knows them now.
INSERT INTO shard_policies (shard_id, {shard_policies})
SELECT $1, {shard_policies}
FROM {shard_policies.rows $2}
WHERE true
ON CONFLICT (shard_id, policy_uid) DO UPDATE SET {shard_policies.set excluded}
