-- item_runs_replace: what a run carries beside its items, if it is as it was read.
UPDATE item_runs SET payload = $3
WHERE shard_id = $1 AND run_id = $2 AND payload = $4
