-- schedules_stored: schedules as they stand, in the order of their uids.
SELECT uid, spec, payload, items FROM schedules
WHERE uid > $1
ORDER BY uid
LIMIT $2
