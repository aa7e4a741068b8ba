-- runs_left: of some schedules, how many runs have not ended, and when the last one did that has.
-- cold: a schedule's shard may have changed, so this looks in all of them, by an index that begins with the schedule.
SELECT schedule_uid, count(*) FILTER (WHERE finished_us IS NULL) AS unfinished, max(finished_us) AS last_finished_us
FROM runs
WHERE schedule_uid {in uuid $1}
GROUP BY schedule_uid
