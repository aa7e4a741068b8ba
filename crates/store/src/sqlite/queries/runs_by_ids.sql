-- runs_by_ids: runs by id.
SELECT {runs}
FROM runs
WHERE shard_id = $1 AND run_id IN (SELECT unhex(value, '-') FROM json_each($2))
ORDER BY run_id
