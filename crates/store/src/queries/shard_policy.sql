-- shard_policy: a policy as its shard knows it.
SELECT policy_uid AS uid, body, deleted_us FROM shard_policies WHERE shard_id = $1 AND policy_uid = $2
