-- runs_policy_ended: runs of a policy that have ended since a moment, latest first.
SELECT {runs}
FROM runs
WHERE shard_id = $1 AND finished_us >= $3 AND policy_uid = $2
ORDER BY finished_us DESC, run_id
LIMIT $4
