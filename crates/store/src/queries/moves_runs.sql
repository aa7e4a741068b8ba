-- moves_runs: a shard's runs of some policies and schedules that have not ended, and how many events of each have.
SELECT run_id, schedule_uid, policy_uid, state, succeeded + failed + dead + expired + cancelled + lost AS ended
FROM runs
WHERE shard_id = $1 AND state = 'EMITTED' AND (policy_uid {in uuid $2} OR schedule_uid {in uuid $3})
UNION ALL
SELECT run_id, schedule_uid, policy_uid, state, succeeded + failed + dead + expired + cancelled + lost AS ended
FROM runs
WHERE shard_id = $1 AND state IN ('WAITING', 'RUNNING') AND (policy_uid {in uuid $2} OR schedule_uid {in uuid $3})
UNION ALL
SELECT run_id, schedule_uid, policy_uid, state, succeeded + failed + dead + expired + cancelled + lost AS ended
FROM runs
WHERE shard_id = $1 AND state NOT IN ('EMITTED', 'WAITING', 'RUNNING', 'FINISHED', 'CANCELLED', 'SKIPPED')
    AND (policy_uid {in uuid $2} OR schedule_uid {in uuid $3})
