-- schedules_lock: the generations of schedules that are about to change, held until the commit.
SELECT uid, generation FROM schedules
WHERE uid = ANY($1::uuid[])
ORDER BY uid
FOR UPDATE
