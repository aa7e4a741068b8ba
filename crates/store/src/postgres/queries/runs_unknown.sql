-- runs_unknown: a shard's runs in states that no version knows. Their index says the same, and is empty.
SELECT shard_id, run_id, schedule_uid, generation, namespace, schedule_id, policy_uid, launch_us, events, priority,
    kind,
    state, reason, next_index, succeeded, failed, dead, expired, cancelled, lost, cursor_in, cursor_out, emitted_us,
    started_us, finished_us
FROM runs
WHERE shard_id = $1 AND state NOT IN ('EMITTED', 'WAITING', 'RUNNING', 'FINISHED', 'CANCELLED', 'SKIPPED')
    AND state <> 'UNREADABLE'
ORDER BY run_id
LIMIT 1000
