-- runs_load: a shard's runs that its owner works on.
SELECT {runs}
FROM runs
WHERE shard_id = $1 AND state IN ('WAITING', 'RUNNING')
ORDER BY run_id
