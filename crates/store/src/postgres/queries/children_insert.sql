-- children_insert: new children.
INSERT INTO schedule_children (zone, launch_expression, slot, schedule_uid, ordinal, rule)
SELECT zone, launch_expression, slot, schedule_uid, ordinal, rule
FROM unnest($1::text[], $2::text[], $3::int[], $4::uuid[], $5::int[], $6::text[])
    AS new (zone, launch_expression, slot, schedule_uid, ordinal, rule)
