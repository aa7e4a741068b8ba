-- runs_policy_open: unfinished runs of a policy that launch before a moment, earliest first.
SELECT shard_id, run_id, schedule_uid, generation, namespace, schedule_id, policy_uid, launch_us, events, priority,
    kind,
    state, reason, next_index, succeeded, failed, dead, expired, cancelled, lost, cursor_in, cursor_out, emitted_us,
    started_us, finished_us
FROM runs
WHERE shard_id = $1 AND state IN ('WAITING', 'RUNNING') AND policy_uid = $2 AND launch_us < $3
ORDER BY launch_us, run_id
LIMIT $4
