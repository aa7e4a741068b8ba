-- moves_tokens: what tokens has of runs that move.
UPDATE tokens SET shard_id = $2
WHERE shard_id = $1 AND run_id {in uuid $3}
