-- windows_finish: a window whose last task is done is complete.
UPDATE scan_windows SET completed_us = $2
WHERE start_us = $1 AND completed_us IS NULL
    AND NOT EXISTS (SELECT 1 FROM scan_tasks WHERE scan_tasks.start_us = $1)
