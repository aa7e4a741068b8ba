-- prune_history: rows of the done queue that are too old.
DELETE FROM event_history
WHERE shard_id = $1 AND (run_id, idx, finished_us) IN (
    SELECT run_id, idx, finished_us FROM event_history
    WHERE shard_id = $1 AND finished_us < $2
    LIMIT $3
)
