-- scan: children of one launch expression, with their schedules, after a place in the order and up to
-- a slot.
-- OFFSET 0 keeps the schedule a look-up for each child, whatever the tables held when this was planned.
SELECT child.slot, child.schedule_uid, child.ordinal, child.rule, schedule.spec, schedule.shard
FROM schedule_children AS child
CROSS JOIN LATERAL (SELECT spec, shard FROM schedules WHERE uid = child.schedule_uid OFFSET 0) AS schedule
WHERE child.zone = $1 AND child.launch_expression = $2
    AND (child.slot, child.schedule_uid, child.ordinal) > ($3, $4, $5)
    AND child.slot <= $6
ORDER BY child.slot, child.schedule_uid, child.ordinal
LIMIT $7
