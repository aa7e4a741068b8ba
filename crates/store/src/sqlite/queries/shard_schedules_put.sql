-- shard_schedules_put: schedules as the shard knows them now.
INSERT INTO shard_schedules (shard_id, {shard_schedules})
SELECT $1, {shard_schedules}
FROM {shard_schedules.rows $2}
WHERE true
ON CONFLICT (shard_id, schedule_uid) DO UPDATE SET {shard_schedules.set excluded}
