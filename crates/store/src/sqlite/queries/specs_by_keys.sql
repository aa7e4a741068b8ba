-- specs_by_keys: run specs by schedule and generation.
SELECT spec.schedule_uid, spec.generation, body
FROM run_specs AS spec JOIN (
    SELECT
        unhex(value ->> 'schedule_uid', '-') AS schedule_uid,
        value ->> 'generation' AS generation
    FROM json_each($2)
) AS wanted
    ON wanted.schedule_uid = spec.schedule_uid AND wanted.generation = spec.generation
WHERE spec.shard_id = $1
