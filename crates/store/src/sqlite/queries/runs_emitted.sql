-- runs_emitted: runs that have been handed over and not read yet, oldest first, from a launch time on.
SELECT shard_id, run_id, schedule_uid, generation, namespace, schedule_id, policy_uid, launch_us, events, priority,
    kind,
    state, reason, next_index, succeeded, failed, dead, expired, cancelled, lost, cursor_in, cursor_out, emitted_us,
    started_us, finished_us
FROM runs
WHERE shard_id = $1 AND state = 'EMITTED' AND launch_us < $2 AND launch_us >= $4
ORDER BY launch_us, run_id
LIMIT $3
