-- prune_ended: batches of ended events that are too old, among those that no daily partition took.
DELETE FROM ended_batches_default
WHERE shard_id = $1 AND (run_id, first_idx, finished_us) IN (
    SELECT run_id, first_idx, finished_us FROM ended_batches_default
    WHERE shard_id = $1 AND finished_us < $2
    LIMIT $3
)
