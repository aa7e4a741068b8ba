-- runs_unreadable: runs that have been passed over, as they cannot be read. Their index says the same.
SELECT {runs}
FROM runs
WHERE shard_id = $1 AND run_id > $2
    AND state NOT IN ('EMITTED', 'WAITING', 'RUNNING', 'FINISHED', 'CANCELLED', 'SKIPPED')
    AND state = 'UNREADABLE'
ORDER BY run_id
LIMIT $3
