-- tasks_insert: a window's tasks.
INSERT INTO scan_tasks (start_us, zone, launch_expression, slots)
SELECT $1, zone, launch_expression, slots
FROM unnest($2::text[], $3::text[], $4::text[])
    AS new (zone, launch_expression, slots)
