-- ended_list: the batches of a run's ended events that have one from an index on: of those that begin at the index, or less
-- than $5 before it, all that reach it; and the next ones.
SELECT {ended_batches}
FROM ended_batches
WHERE shard_id = $1 AND run_id = $2 AND first_idx <= $3 AND first_idx > $3 - CAST($5 AS integer) AND last_idx >= $3
UNION ALL
SELECT {ended_batches}
FROM (
    SELECT {ended_batches}
    FROM ended_batches
    WHERE shard_id = $1 AND run_id = $2 AND first_idx > $3
    ORDER BY first_idx
    LIMIT $4
) AS next
