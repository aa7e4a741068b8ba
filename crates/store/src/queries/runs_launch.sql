-- runs_launch: when a run launches that a shard has.
SELECT launch_us FROM runs
WHERE shard_id = $1 AND run_id = $2
