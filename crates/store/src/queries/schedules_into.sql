-- schedules_into: the schedules that another one follows, the first ones by id.
SELECT id FROM schedules
WHERE namespace = $1 AND next_id = $2
ORDER BY id
LIMIT $3
