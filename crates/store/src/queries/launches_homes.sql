-- launches_homes: runs of a schedule by launch times, and in which shards they are.
-- cold: a schedule's shard may have changed, so this looks in all of them, by an index that begins with the schedule.
SELECT run_id, shard_id FROM runs
WHERE schedule_uid = $1 AND launch_us >= $2 AND launch_us <= $3
