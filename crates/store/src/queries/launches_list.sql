-- launches_list: launch times of a schedule that have a run.
-- cold: a schedule's shard may have changed, so this looks in all of them, by an index that begins with the schedule.
SELECT DISTINCT launch_us FROM runs
WHERE schedule_uid = $1 AND launch_us >= $2 AND launch_us < $3
ORDER BY launch_us
