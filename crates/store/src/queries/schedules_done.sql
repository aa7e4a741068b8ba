-- schedules_done: schedules that may be done by now, those that have waited longest first, after a place in that order.
SELECT {schedules that may be done} FROM schedules
WHERE done_us <= $1 AND (done_us, uid) > ($2, $3)
ORDER BY done_us, uid
LIMIT $4
