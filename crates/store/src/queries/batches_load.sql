-- batches_load: the batches of a shard's unfinished runs.
SELECT {token_batches}
FROM token_batches
WHERE shard_id = $1
ORDER BY run_id, first_idx
