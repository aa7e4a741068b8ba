-- runs_of_schedule: the latest runs of a schedule that a shard has, up to a launch time, latest launch first. They are found by
-- the index that begins with the schedule: nearly all of its runs are in one shard.
SELECT {runs}
FROM runs
WHERE shard_id = $1 AND schedule_uid = $2 AND launch_us <= $3
ORDER BY launch_us DESC, run_id DESC
LIMIT $4
