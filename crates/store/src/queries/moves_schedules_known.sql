-- moves_schedules_known: what a shard knows of some schedules, and whether they live there.
SELECT schedule_uid, generation, body LIKE '%"home":null%' AS is_home FROM shard_schedules
WHERE shard_id = $1 AND schedule_uid {in uuid $2}
