-- calendars_insert: a new calendar; answers with its uid if its name was free.
INSERT INTO calendars ({calendars})
SELECT {calendars}
FROM {calendars.rows $1}
WHERE true
ON CONFLICT DO NOTHING
RETURNING uid
