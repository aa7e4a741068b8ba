-- schedules_delete: schedules that go.
DELETE FROM schedules WHERE uid = ANY($1::uuid[])
