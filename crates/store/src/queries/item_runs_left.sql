-- item_runs_left: runs with items that are so old, made or not, and are not there (any more).
SELECT run_id, schedule_uid
FROM item_runs
WHERE shard_id = $1 AND made = $2 AND created_us < $3
    AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.shard_id = $1 AND runs.run_id = item_runs.run_id)
ORDER BY created_us
LIMIT $4
