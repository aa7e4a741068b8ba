-- runs_emitted: runs that have been handed over and not read yet, oldest first, from a launch time on.
SELECT {runs}
FROM runs
WHERE shard_id = $1 AND state = 'EMITTED' AND launch_us < $2 AND launch_us >= $4
ORDER BY launch_us, run_id
LIMIT $3
