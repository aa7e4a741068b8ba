-- shard_policies_put: policies as the shard knows them now.
INSERT INTO shard_policies (shard_id, policy_uid, body)
SELECT $1, policy_uid, body
FROM unnest($2::uuid[], $3::text[])
    AS new (policy_uid, body)
ON CONFLICT (shard_id, policy_uid) DO UPDATE SET body = excluded.body
