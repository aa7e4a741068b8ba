-- batches_list: batches of a run.
SELECT {token_batches}
FROM token_batches
WHERE shard_id = $1 AND run_id = $2 AND first_idx > $3
ORDER BY first_idx
LIMIT $4
