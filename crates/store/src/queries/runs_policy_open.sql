-- runs_policy_open: unfinished runs of a policy that launch before a moment, earliest first.
SELECT {runs}
FROM runs {sqlite INDEXED BY runs_open}
WHERE shard_id = $1 AND state IN ('WAITING', 'RUNNING') AND policy_uid = $2 AND launch_us < $3
ORDER BY launch_us, run_id
LIMIT $4
