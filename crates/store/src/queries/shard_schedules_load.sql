-- shard_schedules_load: the schedules that a shard knows.
SELECT schedule_uid AS uid, generation, body FROM shard_schedules WHERE shard_id = $1 ORDER BY schedule_uid
