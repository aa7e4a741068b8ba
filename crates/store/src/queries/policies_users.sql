-- policies_users: some schedules that use a policy.
SELECT id FROM schedules
WHERE policy_uid = $1
ORDER BY id
LIMIT $2
