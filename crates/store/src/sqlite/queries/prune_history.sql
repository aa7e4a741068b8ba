-- prune_history: what the done queue has of the runs that prune_runs deletes next.
DELETE FROM event_history
WHERE shard_id = $1 AND (run_id, idx, finished_us) IN (
    SELECT event.run_id, event.idx, event.finished_us
    FROM (
        SELECT run_id FROM runs
        WHERE shard_id = $1 AND finished_us < $2 AND state IN ('FINISHED', 'CANCELLED', 'SKIPPED')
        ORDER BY finished_us, rowid
        LIMIT $3
    ) AS leaving
    CROSS JOIN event_history AS event ON event.shard_id = $1 AND event.run_id = leaving.run_id
    LIMIT $3
)
