-- specs_by_keys: run specs by schedule and generation.
-- OFFSET 0 keeps it a look-up by the whole key, whatever the table held when this was planned.
SELECT spec.schedule_uid, spec.generation, spec.body
FROM unnest($2::uuid[], $3::bigint[]) AS wanted (schedule_uid, generation)
CROSS JOIN LATERAL (
    SELECT schedule_uid, generation, body FROM run_specs
    WHERE shard_id = $1 AND schedule_uid = wanted.schedule_uid AND generation = wanted.generation
    OFFSET 0
) AS spec
