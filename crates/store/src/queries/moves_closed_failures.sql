-- moves_closed_failures: what closed_failures has of runs that move.
UPDATE closed_failures SET shard_id = $2
WHERE shard_id = $1 AND run_id {in uuid $3}
