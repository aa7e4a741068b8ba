-- windows_announce: a window that gets its tasks later.
INSERT INTO scan_windows (start_us, end_us, opened_us, completed_us, tasks, runs)
SELECT $1, $2, $3, NULL, NULL, 0
WHERE NOT EXISTS (SELECT 1 FROM scan_windows WHERE end_us > $1)
ON CONFLICT (start_us) DO NOTHING
