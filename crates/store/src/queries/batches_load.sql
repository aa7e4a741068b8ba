-- batches_load: the batches of a shard's unfinished runs.
SELECT run_id, first_idx, events, acquired_us, gone, held, delivered_us
FROM token_batches
WHERE shard_id = $1
ORDER BY run_id, first_idx
