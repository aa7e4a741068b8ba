-- history_list: the done queue of a run, from the row that covers an index on. Rows do not overlap, so that
-- row is the last that begins
-- at the index or before it.
SELECT {event_history}
FROM event_history
WHERE shard_id = $1 AND run_id = $2
    AND idx >= coalesce(
        (SELECT max(before.idx) FROM event_history AS before
        WHERE before.shard_id = $1 AND before.run_id = $2 AND before.idx <= $3),
        $3
    )
    AND idx + events > $3
    AND (CAST($4 AS text) IS NULL OR outcome = $4)
ORDER BY idx, finished_us
LIMIT $5
