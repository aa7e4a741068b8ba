-- shard_policies_delete: policies that the shard forgets.
DELETE FROM shard_policies WHERE shard_id = $1 AND policy_uid IN (SELECT unhex(value, '-') FROM json_each($2))
