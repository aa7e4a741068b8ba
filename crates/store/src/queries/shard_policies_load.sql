-- shard_policies_load: the policies that a shard knows.
SELECT policy_uid AS uid, body, deleted_us FROM shard_policies WHERE shard_id = $1 ORDER BY policy_uid
