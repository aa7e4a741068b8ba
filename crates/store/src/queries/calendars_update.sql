-- calendars_update: a calendar as it is from now on.
UPDATE calendars SET {calendars.set new}
FROM {calendars.rows $1}
WHERE calendars.uid = new.uid
