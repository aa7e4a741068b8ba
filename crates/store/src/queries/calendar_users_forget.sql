-- calendar_users_forget: what is left of links to a calendar that goes.
DELETE FROM calendar_users WHERE calendar_uid = $1
