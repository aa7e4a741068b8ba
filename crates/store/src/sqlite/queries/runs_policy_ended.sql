-- runs_policy_ended: runs of a policy that have ended since a moment, latest first.
SELECT shard_id, run_id, schedule_uid, generation, namespace, schedule_id, policy_uid, launch_us, events, priority,
    kind,
    state, reason, next_index, succeeded, failed, dead, expired, cancelled, lost, cursor_in, cursor_out, emitted_us,
    started_us, finished_us
FROM runs
WHERE shard_id = $1 AND finished_us >= $3 AND policy_uid = $2
ORDER BY finished_us DESC, run_id
LIMIT $4
