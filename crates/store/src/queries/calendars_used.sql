-- calendars_used: how many schedules go by each of these calendars.
SELECT calendar_users.calendar_uid, count(*) AS users
FROM calendar_users
JOIN schedules ON schedules.uid = calendar_users.schedule_uid
    AND schedules.generation = calendar_users.generation
WHERE calendar_users.calendar_uid {in uuid $1}
GROUP BY calendar_users.calendar_uid
