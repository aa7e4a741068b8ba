-- children_delete: the children of schedules go.
DELETE FROM schedule_children WHERE schedule_uid {in uuid $1}
