-- shard_schedule_get: what a shard knows of a schedule.
SELECT {shard_schedules} FROM shard_schedules
WHERE shard_id = $1 AND schedule_uid = $2
