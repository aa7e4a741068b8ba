-- calendar_users_now: the schedules that go by a calendar, with their generations.
SELECT schedules.uid, schedules.generation
FROM calendar_users
JOIN schedules ON schedules.uid = calendar_users.schedule_uid
    AND schedules.generation = calendar_users.generation
WHERE calendar_users.calendar_uid = $1
