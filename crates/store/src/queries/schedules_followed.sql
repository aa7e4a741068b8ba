-- schedules_followed: which of some schedules follow others that stay, and the first of those.
SELECT gone.uid, stays.id
FROM schedules AS gone
JOIN schedules AS stays ON stays.namespace = gone.namespace AND stays.next_id = gone.id
WHERE gone.uid {in uuid $1} AND NOT (stays.uid {in uuid $1})
ORDER BY gone.id, stays.id
LIMIT $2
