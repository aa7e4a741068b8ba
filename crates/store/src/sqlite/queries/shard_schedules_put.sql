-- shard_schedules_put: schedules as the shard knows them now.
INSERT INTO shard_schedules (shard_id, schedule_uid, generation, body)
SELECT $1, schedule_uid, generation, body
FROM (
    SELECT
        unhex(value ->> 'schedule_uid', '-') AS schedule_uid,
        value ->> 'generation' AS generation,
        value ->> 'body' AS body
    FROM json_each($2)
) AS new
WHERE true
ON CONFLICT (shard_id, schedule_uid) DO UPDATE SET generation = excluded.generation, body = excluded.body
