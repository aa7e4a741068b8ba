-- specs_insert: run specs of new generations; one that is there stays.
INSERT INTO run_specs (shard_id, schedule_uid, generation, created_us, body)
SELECT shard_id, schedule_uid, generation, created_us, body
FROM (
    SELECT
        value ->> 'shard_id' AS shard_id,
        unhex(value ->> 'schedule_uid', '-') AS schedule_uid,
        value ->> 'generation' AS generation,
        value ->> 'created_us' AS created_us,
        value ->> 'body' AS body
    FROM json_each($1)
) AS new
WHERE true
ON CONFLICT (shard_id, schedule_uid, generation) DO NOTHING
