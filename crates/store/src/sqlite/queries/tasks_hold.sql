-- tasks_hold: those of the tasks that are still claimed under this lease; nobody else claims them before the commit.
SELECT start_us FROM scan_tasks
WHERE lease_id = $1 AND (start_us, zone, launch_expression) IN (
    SELECT start_us, zone, launch_expression
    FROM (
    SELECT
        value ->> 'start_us' AS start_us,
        value ->> 'zone' AS zone,
        value ->> 'launch_expression' AS launch_expression
    FROM json_each($2)
) AS held
)
