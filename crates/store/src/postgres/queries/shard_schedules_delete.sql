-- shard_schedules_delete: schedules that the shard forgets.
DELETE FROM shard_schedules WHERE shard_id = $1 AND schedule_uid = ANY($2::uuid[])
