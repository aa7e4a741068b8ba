-- tasks_insert: a window's tasks.
INSERT INTO scan_tasks (start_us, zone, launch_expression, slots)
SELECT $1, zone, launch_expression, slots
FROM (
    SELECT
        value ->> 'zone' AS zone,
        value ->> 'launch_expression' AS launch_expression,
        value ->> 'slots' AS slots
    FROM json_each($2)
) AS new
