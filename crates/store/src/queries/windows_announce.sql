-- windows_announce: a window that gets its tasks later. It follows the newest, without a gap.
INSERT INTO scan_windows (start_us, end_us, opened_us, completed_us, tasks, runs)
SELECT $1, $2, $3, NULL, NULL, 0
WHERE coalesce((SELECT end_us FROM scan_windows ORDER BY start_us DESC LIMIT 1) = $1, true)
ON CONFLICT (start_us) DO NOTHING
