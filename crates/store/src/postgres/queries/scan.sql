-- scan: children of launch expressions, with their schedules: of each those after a place in the order and up to a slot.
-- OFFSET 0 keeps the schedule a look-up for each child, whatever the tables held when this was planned.
SELECT
    wanted.task, found.slot, found.schedule_uid, found.ordinal, found.rule, found.spec, found.shard
FROM unnest($1::int[], $2::text[], $3::text[], $4::int[], $5::uuid[], $6::int[], $7::int[])
    AS wanted (task, zone, launch_expression, slot, schedule_uid, ordinal, last)
CROSS JOIN LATERAL (
    SELECT child.slot, child.schedule_uid, child.ordinal, child.rule, schedule.spec, schedule.shard
    FROM schedule_children AS child
    CROSS JOIN LATERAL (SELECT spec, shard FROM schedules WHERE uid = child.schedule_uid OFFSET 0) AS schedule
    WHERE child.zone = wanted.zone AND child.launch_expression = wanted.launch_expression
        AND (child.slot, child.schedule_uid, child.ordinal) > (wanted.slot, wanted.schedule_uid, wanted.ordinal)
        AND child.slot <= wanted.last
    ORDER BY child.slot, child.schedule_uid, child.ordinal
    LIMIT $8
) AS found
ORDER BY wanted.task, found.slot, found.schedule_uid, found.ordinal
