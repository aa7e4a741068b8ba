-- batches_list: batches of a run.
SELECT run_id, first_idx, events, acquired_us, gone, held, delivered_us
FROM token_batches
WHERE shard_id = $1 AND run_id = $2 AND first_idx > $3
ORDER BY first_idx
LIMIT $4
