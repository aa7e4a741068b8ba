-- runs_not_well: runs of a shard that have ended since a moment, of which events failed, died, expired or were lost,
-- and which nobody has closed; latest first.
SELECT {runs}
FROM runs
WHERE shard_id = $1 AND finished_us IS NOT NULL AND finished_us >= $2 AND failed + dead + expired + lost > 0
    AND NOT EXISTS (
        SELECT 1 FROM closed_failures AS closed
        WHERE closed.shard_id = $1 AND closed.run_id = runs.run_id AND closed.until_us >= runs.finished_us
    )
ORDER BY finished_us DESC, run_id
LIMIT $3
