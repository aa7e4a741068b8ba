-- calendar_users_list: schedules that go by a calendar, in the order of their ids, from after $2 on.
SELECT schedules.id
FROM calendar_users
JOIN schedules ON schedules.uid = calendar_users.schedule_uid
    AND schedules.generation = calendar_users.generation
WHERE calendar_users.calendar_uid = $1 AND schedules.id > $2
ORDER BY schedules.id
LIMIT $3
