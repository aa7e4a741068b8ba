-- prune_attempts: deliveries that were made too long ago.
DELETE FROM event_attempts
WHERE (run_id, idx, place) IN (SELECT run_id, idx, place FROM event_attempts WHERE start_us < $1 LIMIT $2)
