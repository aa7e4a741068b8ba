-- runs_list_failed: why the items of a run could not be fetched; they may be yet.
UPDATE runs SET reason = $4
WHERE shard_id = $1 AND run_id = $2 AND state = 'LISTING' AND generation = $3
