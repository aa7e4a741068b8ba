-- moves_schedules_before: what a shard knows of schedules of which another one knows more.
DELETE FROM shard_schedules
WHERE shard_id = $1 AND schedule_uid {in uuid $2}
