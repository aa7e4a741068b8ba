-- schedules_by_ids: schedules of a namespace by id.
SELECT {schedules as read} FROM schedules
WHERE namespace = $1 AND id {in text $2}
ORDER BY id
