-- runs_finished: runs of a shard that have finished at or after a moment, earliest first, from after a place on, of some
-- namespaces.
SELECT {runs}
FROM runs
WHERE shard_id = $1 AND finished_us >= $2 AND (finished_us, run_id) > ($2, $3) AND state = 'FINISHED'
    AND namespace {in text $5}
ORDER BY finished_us, run_id
LIMIT $4
