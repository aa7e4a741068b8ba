-- schedules_delete: schedules that go.
DELETE FROM schedules WHERE uid IN (SELECT unhex(value, '-') FROM json_each($1))
