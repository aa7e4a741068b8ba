-- calendars_delete: a calendar goes.
DELETE FROM calendars WHERE uid = $1
