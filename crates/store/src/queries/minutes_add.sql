-- minutes_add: hours, to which minutes are added.
INSERT INTO minute_counts ({minute_counts})
SELECT {minute_counts}
FROM {minute_counts.rows $1}
WHERE true
ON CONFLICT ({minute_counts.key}) DO UPDATE SET
    until_us = excluded.until_us,
    due = minute_counts.due + excluded.due,
    started = minute_counts.started + excluded.started,
    retried = minute_counts.retried + excluded.retried,
    succeeded = minute_counts.succeeded + excluded.succeeded,
    failed = minute_counts.failed + excluded.failed,
    dead = minute_counts.dead + excluded.dead,
    expired = minute_counts.expired + excluded.expired,
    cancelled = minute_counts.cancelled + excluded.cancelled,
    lost = minute_counts.lost + excluded.lost,
    waiting = {postgres greatest}{sqlite max}(minute_counts.waiting, excluded.waiting),
    held = {postgres greatest}{sqlite max}(minute_counts.held, excluded.held)
