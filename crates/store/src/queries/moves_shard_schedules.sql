-- moves_shard_schedules: schedules that move, as their shard knows them.
UPDATE shard_schedules SET shard_id = $2
WHERE shard_id = $1 AND schedule_uid {in uuid $3}
