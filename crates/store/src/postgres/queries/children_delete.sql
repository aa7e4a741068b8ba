-- children_delete: the children of schedules go.
DELETE FROM schedule_children WHERE schedule_uid = ANY($1::uuid[])
