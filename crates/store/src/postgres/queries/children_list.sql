-- children_list: a schedule's children in their order.
SELECT zone, launch_expression, slot, schedule_uid, ordinal, rule FROM schedule_children
WHERE schedule_uid = $1 AND ordinal > $2
ORDER BY ordinal
LIMIT $3
