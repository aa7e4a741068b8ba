-- item_runs_made: the run has been made.
UPDATE item_runs SET made = true
WHERE shard_id = $1 AND run_id = $2
