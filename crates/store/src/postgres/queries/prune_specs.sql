-- prune_specs: run specs that nothing needs, as it turned out: no run, nor the shard.
-- The range and the hashed set leave the planner no choice: a plan made while the table was empty could otherwise
-- match every row of the shard against the whole array.
DELETE FROM run_specs
WHERE shard_id = $1
    AND (schedule_uid, generation) >= ($4, $5) AND (schedule_uid, generation) <= ($6, $7)
    AND (
        (schedule_uid, generation) IN (
            SELECT old.schedule_uid, old.generation FROM unnest($2::uuid[], $3::bigint[]) AS old (schedule_uid, generation)
        )
    ) IS TRUE
    AND NOT EXISTS (
        SELECT 1 FROM runs
        WHERE runs.shard_id = $1 AND runs.schedule_uid = run_specs.schedule_uid
            AND runs.generation = run_specs.generation
    )
    AND NOT EXISTS (
        SELECT 1 FROM shard_schedules
        WHERE shard_schedules.shard_id = $1 AND shard_schedules.schedule_uid = run_specs.schedule_uid
            AND shard_schedules.generation = run_specs.generation
    )
