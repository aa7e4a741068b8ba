-- windows_insert: a new window.
INSERT INTO scan_windows (start_us, end_us, opened_us, completed_us, tasks, runs)
VALUES ($1, $2, $3, $4, $5, 0)
ON CONFLICT (start_us) DO NOTHING
