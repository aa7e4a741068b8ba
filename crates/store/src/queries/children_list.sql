-- children_list: a schedule's children in their order.
SELECT {schedule_children} FROM schedule_children
WHERE schedule_uid = $1 AND ordinal > $2
ORDER BY ordinal
LIMIT $3
