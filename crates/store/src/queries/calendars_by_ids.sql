-- calendars_by_ids: calendars of a namespace by id.
SELECT {calendars as read} FROM calendars
WHERE namespace = $1 AND id {in text $2}
ORDER BY id
