-- results_list: results of a run from an index on.
SELECT idx, body
FROM event_results
WHERE shard_id = $1 AND run_id = $2 AND idx >= $3
ORDER BY idx
LIMIT $4
