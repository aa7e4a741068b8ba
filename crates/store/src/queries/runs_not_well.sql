-- runs_not_well: runs of a shard that have ended since a moment, of which events failed, died, expired or were lost;
-- latest first.
SELECT {runs}
FROM runs
WHERE shard_id = $1 AND finished_us >= $2 AND failed + dead + expired + lost > 0
ORDER BY finished_us DESC, run_id
LIMIT $3
