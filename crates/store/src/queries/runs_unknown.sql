-- runs_unknown: a shard's runs in states that no version knows. Their index says the same, and is empty.
SELECT {runs}
FROM runs
WHERE shard_id = $1 AND state NOT IN ('EMITTED', 'WAITING', 'RUNNING', 'FINISHED', 'CANCELLED', 'SKIPPED')
    AND state NOT IN ('UNREADABLE', 'LISTING')
ORDER BY run_id
LIMIT 1000
