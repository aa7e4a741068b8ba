-- prune_history: rows of the done queue that are too old, among those that no daily partition took.
DELETE FROM event_history_default
WHERE shard_id = $1 AND (run_id, idx, finished_us) IN (
    SELECT run_id, idx, finished_us FROM event_history_default
    WHERE shard_id = $1 AND finished_us < $2
    LIMIT $3
)
