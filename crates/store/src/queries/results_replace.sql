-- results_replace: one result's text, if it is as it was read.
UPDATE event_results SET body = $4
WHERE shard_id = $1 AND run_id = $2 AND idx = $3 AND body = $5
