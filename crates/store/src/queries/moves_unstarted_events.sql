-- moves_unstarted_events: what unstarted_events has of runs that move.
UPDATE unstarted_events SET shard_id = $2
WHERE shard_id = $1 AND run_id {in uuid $3}
