-- moved_runs_drop: runs that are in a shard again.
DELETE FROM moved_runs
WHERE shard_id = $1 AND run_id {in uuid $2}
