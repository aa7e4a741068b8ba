-- runs_failed: runs of a namespace that have ended, of which events failed, died, expired or were lost; latest end first.
-- cold: for users; looks in all shards, by an index that begins with the namespace.
SELECT {runs}
FROM runs
WHERE namespace = $1 AND finished_us IS NOT NULL AND failed + dead + expired + lost > 0
    AND finished_us >= $2 AND finished_us <= $3
    AND (finished_us, run_id) < ($4, $5)
    AND ($6 IS NULL OR schedule_uid = $6)
    AND ($7 IS NULL OR policy_uid = $7)
    AND ($8 OR NOT EXISTS (
        SELECT 1 FROM closed_failures AS closed
        WHERE closed.shard_id = runs.shard_id AND closed.run_id = runs.run_id AND closed.until_us >= runs.finished_us
    ))
ORDER BY finished_us DESC, run_id DESC
LIMIT $9
