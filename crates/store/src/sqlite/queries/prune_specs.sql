-- prune_specs: run specs that nothing needs: no run, neither the schedule as it is nor as it was a while ago,
-- nor the shard.
-- What is looked up by a whole key comes first. INDEXED BY: SQLite would look through all runs of the shard.
DELETE FROM run_specs
WHERE shard_id = $1 AND (schedule_uid, generation) IN (
    SELECT old.schedule_uid, old.generation FROM run_specs AS old
    WHERE old.shard_id = $1 AND old.created_us < $2
        AND NOT EXISTS (
            SELECT 1 FROM schedules
            WHERE schedules.uid = old.schedule_uid
                AND (schedules.generation = old.generation OR schedules.updated_us >= $2)
        )
        AND NOT EXISTS (
            SELECT 1 FROM shard_schedules
            WHERE shard_schedules.shard_id = $1 AND shard_schedules.schedule_uid = old.schedule_uid
                AND shard_schedules.generation = old.generation
        )
        AND NOT EXISTS (
            SELECT 1 FROM runs INDEXED BY runs_schedule
            WHERE runs.shard_id = $1 AND runs.schedule_uid = old.schedule_uid AND runs.generation = old.generation
        )
    LIMIT $3
)
