-- shard_policies_delete: policies that the shard forgets.
-- The range and the hashed set leave the planner no choice: a plan made while the table was empty could otherwise
-- match every row of the shard against the whole array.
DELETE FROM shard_policies
WHERE shard_id = $1
    AND policy_uid >= $3 AND policy_uid <= $4
    AND (policy_uid IN (SELECT unnest($2::uuid[]))) IS TRUE
