-- tasks_hold: those of the tasks that are still claimed under this lease; nobody else claims them before the commit.
SELECT start_us FROM scan_tasks
WHERE lease_id = $1 AND (start_us, zone, launch_expression) IN (
    SELECT start_us, zone, launch_expression FROM {keys of scan_tasks.rows $2}
)
{postgres FOR SHARE}
