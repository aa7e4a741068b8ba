-- shard_schedules_load: the schedules that a shard knows.
SELECT {shard_schedules} FROM shard_schedules WHERE shard_id = $1 ORDER BY schedule_uid
