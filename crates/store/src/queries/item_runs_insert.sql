-- item_runs_insert: a run that is to have items.
INSERT INTO item_runs (shard_id, run_id, schedule_uid, created_us, payload, made)
VALUES ($1, $2, $3, $4, $5, false)
