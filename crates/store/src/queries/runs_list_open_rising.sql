-- runs_list_open_rising: unfinished runs of a namespace, earliest launch first.
-- cold: for users; looks in all shards, by the index of what is unfinished, however much has ended.
SELECT {runs}
FROM runs {sqlite INDEXED BY runs_open}
WHERE state IN ('WAITING', 'RUNNING') AND namespace = $1
    AND launch_us >= $2 AND launch_us < $3
    AND (launch_us, run_id) > ($4, $5)
    AND state {in text $6}
    AND ($8 IS NULL OR policy_uid = $8)
    AND ($9 IS NULL OR schedule_uid = $9)
ORDER BY launch_us, run_id
LIMIT $7
