-- shard_policies_load: the policies that a shard knows.
SELECT policy_uid AS uid, body FROM shard_policies WHERE shard_id = $1 ORDER BY policy_uid
