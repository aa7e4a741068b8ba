-- schedules_by_ids: schedules of a namespace by id.
SELECT uid, id, spec, payload FROM schedules
WHERE namespace = $1 AND id IN (SELECT value FROM json_each($2))
ORDER BY id
