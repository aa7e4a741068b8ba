-- schedules_by_ids: schedules of a namespace by id.
SELECT uid, id, spec, payload FROM schedules
WHERE namespace = $1 AND id = ANY($2::text[])
ORDER BY id
