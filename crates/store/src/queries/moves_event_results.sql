-- moves_event_results: what event_results has of runs that move.
UPDATE event_results SET shard_id = $2
WHERE shard_id = $1 AND run_id {in uuid $3}
