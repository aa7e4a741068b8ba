-- scan: children of one launch expression, with their schedules, after a place in the order and up to
-- a slot.
SELECT 0 AS task, child.slot, child.schedule_uid, child.ordinal, child.rule, schedule.spec, schedule.shard
FROM schedule_children AS child JOIN schedules AS schedule ON schedule.uid = child.schedule_uid
WHERE child.zone = $1 AND child.launch_expression = $2
    AND (child.slot, child.schedule_uid, child.ordinal) > ($3, $4, $5)
    AND child.slot <= $6
ORDER BY child.slot, child.schedule_uid, child.ordinal
LIMIT $7
