-- history_failed: rows of a run's done queue with some outcomes, none of which is success, from the row that covers an
-- index on. Rows do not overlap.
SELECT {event_history}
FROM event_history
WHERE shard_id = $1 AND run_id = $2 AND outcome <> 'SUCCEEDED' AND outcome {in text $4}
    AND idx >= coalesce(
        (SELECT max(before.idx) FROM event_history AS before
        WHERE before.shard_id = $1 AND before.run_id = $2 AND before.idx <= $3 AND before.outcome <> 'SUCCEEDED'),
        $3
    )
    AND idx + events > $3
ORDER BY idx, finished_us
LIMIT $5
