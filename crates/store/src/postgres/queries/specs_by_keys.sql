-- specs_by_keys: run specs by schedule and generation.
SELECT spec.schedule_uid, spec.generation, body
FROM run_specs AS spec JOIN unnest($2::uuid[], $3::bigint[])
    AS wanted (schedule_uid, generation)
    ON wanted.schedule_uid = spec.schedule_uid AND wanted.generation = spec.generation
WHERE spec.shard_id = $1
