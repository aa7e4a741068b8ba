-- results_stored: results of a shard as they stand, in the order of their keys.
SELECT run_id, idx, body
FROM event_results
WHERE shard_id = $1 AND (run_id, idx) > ($2, $3)
ORDER BY run_id, idx
LIMIT $4
