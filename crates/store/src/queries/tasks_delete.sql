-- tasks_delete: tasks that are done.
DELETE FROM scan_tasks
WHERE lease_id = $1 AND (start_us, zone, launch_expression) IN (
    SELECT start_us, zone, launch_expression FROM {keys of scan_tasks.rows $2}
)
