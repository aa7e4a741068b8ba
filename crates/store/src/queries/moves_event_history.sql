-- moves_event_history: what event_history has of runs that move.
UPDATE event_history SET shard_id = $2
WHERE shard_id = $1 AND run_id {in uuid $3}
