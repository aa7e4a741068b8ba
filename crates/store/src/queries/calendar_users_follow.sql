-- calendar_users_follow: schedules with other dates go by their calendars as before.
UPDATE calendar_users SET generation = new.generation
FROM {schedules with other dates.rows $1}
WHERE calendar_users.schedule_uid = new.uid AND calendar_users.generation = new.generation - 1
