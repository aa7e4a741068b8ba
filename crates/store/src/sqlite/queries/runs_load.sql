-- runs_load: a shard's runs that its owner works on.
SELECT shard_id, run_id, schedule_uid, generation, namespace, schedule_id, policy_uid, launch_us, events, priority,
    kind,
    state, reason, next_index, succeeded, failed, dead, expired, cancelled, lost, cursor_in, cursor_out, emitted_us,
    started_us, finished_us
FROM runs
WHERE shard_id = $1 AND state IN ('WAITING', 'RUNNING')
ORDER BY run_id
