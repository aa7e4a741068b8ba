-- history_dead_some: some dead events of a run, by index.
SELECT {event_history}
FROM event_history
WHERE shard_id = $1 AND run_id = $2 AND outcome = 'DEAD' AND idx {in int $4}
ORDER BY idx
LIMIT $3
