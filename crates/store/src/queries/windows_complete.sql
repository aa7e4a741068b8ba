-- windows_complete: the latest complete windows, newest first.
SELECT
    start_us, end_us, opened_us, completed_us, tasks, runs,
    (SELECT count(*) FROM scan_tasks WHERE scan_tasks.start_us = scan_windows.start_us) AS tasks_left
FROM scan_windows
WHERE completed_us IS NOT NULL
ORDER BY start_us DESC
LIMIT $1
