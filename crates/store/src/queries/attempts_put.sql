-- attempts_put: what became of deliveries. A later one of an event takes the place of the one 32 before it.
INSERT INTO event_attempts ({event_attempts})
SELECT {event_attempts}
FROM {event_attempts.rows $1}
WHERE true
ON CONFLICT ({event_attempts.key}) DO UPDATE SET {event_attempts.set excluded}
WHERE event_attempts.attempt <= excluded.attempt
