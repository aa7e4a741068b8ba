-- prune_results: results that are so old, and whose runs are not there any more.
DELETE FROM event_results
WHERE shard_id = $1 AND (run_id, idx) IN (
    SELECT run_id, idx FROM event_results
    WHERE shard_id = $1 AND ended_us < $2
        AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.shard_id = $1 AND runs.run_id = event_results.run_id)
    ORDER BY ended_us
    LIMIT $3
)
