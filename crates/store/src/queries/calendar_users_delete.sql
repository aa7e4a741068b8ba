-- calendar_users_delete: by which calendars schedules go is noted anew, or they go.
DELETE FROM calendar_users WHERE schedule_uid {in uuid $1}
