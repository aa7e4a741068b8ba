-- moves_runs: a shard's runs that have not ended, and how many events of each have.
SELECT run_id, schedule_uid, policy_uid, state, succeeded + failed + dead + expired + cancelled + lost AS ended
FROM runs
WHERE shard_id = $1 AND state = 'EMITTED'
UNION ALL
SELECT run_id, schedule_uid, policy_uid, state, succeeded + failed + dead + expired + cancelled + lost AS ended
FROM runs
WHERE shard_id = $1 AND state IN ('WAITING', 'RUNNING')
UNION ALL
SELECT run_id, schedule_uid, policy_uid, state, succeeded + failed + dead + expired + cancelled + lost AS ended
FROM runs
WHERE shard_id = $1 AND state NOT IN ('EMITTED', 'WAITING', 'RUNNING', 'FINISHED', 'CANCELLED', 'SKIPPED')
