-- moves_token_batches: what token_batches has of runs that move.
UPDATE token_batches SET shard_id = $2
WHERE shard_id = $1 AND run_id {in uuid $3}
