-- history_dead: dead events of a run.
SELECT {event_history}
FROM event_history
WHERE shard_id = $1 AND run_id = $2 AND outcome = 'DEAD'
ORDER BY idx
LIMIT $3
