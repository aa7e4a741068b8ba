-- calendar_users_insert: schedules go by calendars.
INSERT INTO calendar_users ({calendar_users})
SELECT {calendar_users}
FROM {calendar_users.rows $1}
WHERE true
