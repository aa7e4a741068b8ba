-- runs_list_schedule: runs of a schedule, newest launch first.
-- cold: for users; looks in all shards, by an index that begins with the schedule.
SELECT {runs}
FROM runs
WHERE schedule_uid = $8 AND namespace = $1
    AND launch_us >= $2 AND launch_us < $3
    AND (launch_us, run_id) < ($4, $5)
    AND (cardinality($6::text[]) = 0 OR state = ANY($6::text[]))
    AND ($9::uuid IS NULL OR policy_uid = $9)
ORDER BY launch_us DESC, run_id DESC
LIMIT $7
