-- schedules_delete: schedules that go.
DELETE FROM schedules WHERE uid {in uuid $1}
