-- item_runs_stored: what runs carry beside their items, as it stands, in the order of the runs.
SELECT run_id, schedule_uid, payload
FROM item_runs
WHERE shard_id = $1 AND run_id > $2
ORDER BY run_id
LIMIT $3
