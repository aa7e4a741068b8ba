-- prune_specs_old: run specs of a shard that neither a run nor the shard needs, after a place in the order.
SELECT schedule_uid, generation FROM run_specs
WHERE shard_id = $1 AND (schedule_uid, generation) > ($3, $4) AND created_us < $2
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
ORDER BY schedule_uid, generation
LIMIT $5
