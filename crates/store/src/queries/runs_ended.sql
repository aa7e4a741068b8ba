-- runs_ended: runs of a shard that have ended since a moment, latest first.
SELECT {runs}
FROM runs
WHERE shard_id = $1 AND finished_us IS NOT NULL AND finished_us >= $2
ORDER BY finished_us DESC, run_id
LIMIT $3
