-- item_runs_delete: nothing is left of the items of a run.
DELETE FROM item_runs
WHERE shard_id = $1 AND run_id = $2
