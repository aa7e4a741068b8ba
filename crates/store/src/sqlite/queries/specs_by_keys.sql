-- specs_by_keys: run specs by schedule and generation.
-- CROSS JOIN keeps it a look-up by the whole key; SQLite would read all specs of the shard.
SELECT spec.schedule_uid, spec.generation, body
FROM (
    SELECT
        unhex(value ->> 'schedule_uid', '-') AS schedule_uid,
        value ->> 'generation' AS generation
    FROM json_each($2)
) AS wanted
CROSS JOIN run_specs AS spec
    ON spec.schedule_uid = wanted.schedule_uid AND spec.generation = wanted.generation
WHERE spec.shard_id = $1
