-- attempts_list: what became of an event's deliveries.
SELECT {event_attempts}
FROM event_attempts
WHERE run_id = $1 AND idx = $2
ORDER BY attempt
