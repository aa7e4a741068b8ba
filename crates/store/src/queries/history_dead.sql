-- history_dead: dead events of a run.
SELECT run_id, idx, events, outcome, attempt, acquired_us, delivered_us, finished_us, message
FROM event_history
WHERE shard_id = $1 AND run_id = $2 AND outcome = 'DEAD'
ORDER BY idx
LIMIT $3
