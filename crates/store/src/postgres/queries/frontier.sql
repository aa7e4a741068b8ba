-- frontier: how far the emitters are: the end of the newest window, and of the last before the first that
-- is open.
SELECT
    (SELECT max(end_us) FROM scan_windows) AS opened_until_us,
    (
        SELECT max(done.end_us) FROM scan_windows AS done
        WHERE NOT EXISTS (
            SELECT 1 FROM scan_windows AS open
            WHERE open.completed_us IS NULL AND open.start_us <= done.start_us
        )
    ) AS completed_until_us
