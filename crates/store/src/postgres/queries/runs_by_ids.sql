-- runs_by_ids: runs by id.
-- OFFSET 0 keeps it a look-up for each id; which index serves it is decided at every call.
SELECT run.*
FROM unnest($2::uuid[]) AS wanted (run_id)
CROSS JOIN LATERAL (
    SELECT {runs}
    FROM runs
    WHERE shard_id = $1 AND run_id = wanted.run_id
    OFFSET 0
) AS run
ORDER BY run_id
