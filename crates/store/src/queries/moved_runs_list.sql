-- moved_runs_list: where some runs are that have been in a shard.
SELECT run_id, to_shard FROM moved_runs
WHERE shard_id = $1 AND run_id {in uuid $2}
