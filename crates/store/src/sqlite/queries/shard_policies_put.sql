-- shard_policies_put: policies as the shard knows them now.
INSERT INTO shard_policies (shard_id, policy_uid, body)
SELECT $1, policy_uid, body
FROM (
    SELECT
        unhex(value ->> 'policy_uid', '-') AS policy_uid,
        value ->> 'body' AS body
    FROM json_each($2)
) AS new
WHERE true
ON CONFLICT (shard_id, policy_uid) DO UPDATE SET body = excluded.body
