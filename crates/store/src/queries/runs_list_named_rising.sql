-- runs_list_named_rising: runs of a namespace whose ids lie in a range, earliest launch first.
-- cold: for users; looks in all shards or in one, by the primary key.
SELECT {runs}
FROM runs
WHERE shard_id {in int $12} AND run_id >= $13 AND run_id <= $14
    AND {sqlite +}namespace = $1
    AND {sqlite +}launch_us >= $2 AND {sqlite +}launch_us < $3
    AND (launch_us, run_id) > ($4, $5)
    AND ($8 OR state {in text $6})
    AND ($9 IS NULL OR {sqlite +}schedule_uid = $9)
    AND ($10 IS NULL OR policy_uid = $10)
    AND ($11 IS NULL OR state <> 'FINISHED' OR (failed + dead + expired + lost > 0) = $11)
ORDER BY {sqlite +}launch_us, run_id
LIMIT $7
