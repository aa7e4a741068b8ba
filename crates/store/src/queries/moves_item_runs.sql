-- moves_item_runs: what item_runs has of runs that move.
UPDATE item_runs SET shard_id = $2
WHERE shard_id = $1 AND run_id {in uuid $3}
