-- windows_insert: a window with its tasks: a new one, or one that has been announced.
INSERT INTO scan_windows (start_us, end_us, opened_us, completed_us, tasks, runs)
VALUES ($1, $2, $3, $4, $5, 0)
ON CONFLICT (start_us) DO UPDATE SET completed_us = excluded.completed_us, tasks = excluded.tasks
WHERE scan_windows.tasks IS NULL AND scan_windows.end_us = excluded.end_us
