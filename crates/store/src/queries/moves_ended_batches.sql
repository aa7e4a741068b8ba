-- moves_ended_batches: what ended_batches has of runs that move.
UPDATE ended_batches SET shard_id = $2
WHERE shard_id = $1 AND run_id {in uuid $3}
