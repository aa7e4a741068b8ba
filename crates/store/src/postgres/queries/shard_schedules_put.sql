-- shard_schedules_put: schedules as the shard knows them now.
INSERT INTO shard_schedules (shard_id, schedule_uid, generation, body)
SELECT $1, schedule_uid, generation, body
FROM unnest($2::uuid[], $3::bigint[], $4::text[])
    AS new (schedule_uid, generation, body)
ON CONFLICT (shard_id, schedule_uid) DO UPDATE SET generation = excluded.generation, body = excluded.body
