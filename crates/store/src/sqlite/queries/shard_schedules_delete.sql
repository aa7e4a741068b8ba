-- shard_schedules_delete: schedules that the shard forgets.
DELETE FROM shard_schedules WHERE shard_id = $1 AND schedule_uid IN (SELECT unhex(value, '-') FROM json_each($2))
