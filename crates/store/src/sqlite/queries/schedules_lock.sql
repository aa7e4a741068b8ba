-- schedules_lock: the generations of schedules that are about to change, held until the commit.
SELECT uid, generation FROM schedules
WHERE uid IN (SELECT unhex(value, '-') FROM json_each($1))
ORDER BY uid
