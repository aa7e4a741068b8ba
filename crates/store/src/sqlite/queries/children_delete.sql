-- children_delete: the children of schedules go.
DELETE FROM schedule_children WHERE schedule_uid IN (SELECT unhex(value, '-') FROM json_each($1))
