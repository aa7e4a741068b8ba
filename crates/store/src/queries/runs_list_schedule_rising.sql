-- runs_list_schedule_rising: runs of a schedule, earliest launch first.
-- cold: for users; looks in all shards, by an index that begins with the schedule.
SELECT {runs}
FROM runs
WHERE schedule_uid = $9 AND namespace = $1
    AND launch_us >= $2 AND launch_us < $3
    AND (launch_us, run_id) > ($4, $5)
    AND ($8 OR state {in text $6})
    AND ($10 IS NULL OR policy_uid = $10)
    AND ($11 IS NULL OR state <> 'FINISHED' OR (failed + dead + expired + lost > 0) = $11)
ORDER BY launch_us, run_id
LIMIT $7
