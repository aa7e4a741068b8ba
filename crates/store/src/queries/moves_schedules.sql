-- moves_schedules: where schedules live, a page by uid.
SELECT uid, policy_uid, shard FROM schedules
WHERE uid > $1
ORDER BY uid
LIMIT $2
