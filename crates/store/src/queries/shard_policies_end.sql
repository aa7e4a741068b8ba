-- shard_policies_end: a policy has been deleted, at this time.
UPDATE shard_policies SET deleted_us = $3
WHERE shard_id = $1 AND policy_uid = $2
