-- runs_unreadable: runs that have been passed over, as they cannot be read. Their index says the same.
SELECT shard_id, run_id, schedule_uid, generation, namespace, schedule_id, policy_uid, launch_us, events, priority,
    kind,
    state, reason, next_index, succeeded, failed, dead, expired, cancelled, lost, cursor_in, cursor_out, emitted_us,
    started_us, finished_us
FROM runs
WHERE shard_id = $1 AND run_id > $2
    AND state NOT IN ('EMITTED', 'WAITING', 'RUNNING', 'FINISHED', 'CANCELLED', 'SKIPPED')
    AND state = 'UNREADABLE'
ORDER BY run_id
LIMIT $3
