-- item_runs_get: what all events of a run carry, and whose run it is.
SELECT schedule_uid, payload
FROM item_runs
WHERE shard_id = $1 AND run_id = $2
