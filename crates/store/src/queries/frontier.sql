-- frontier: how far the emitters are: the end of the newest window, and of the last before the first that
-- is open. Windows do not overlap, so that the order of their starts is that of their ends.
SELECT
    (SELECT end_us FROM scan_windows ORDER BY start_us DESC LIMIT 1) AS opened_until_us,
    (
        SELECT end_us FROM scan_windows
        WHERE start_us < coalesce(
            (SELECT min(start_us) FROM scan_windows WHERE completed_us IS NULL), 9223372036854775807
        )
        ORDER BY start_us DESC
        LIMIT 1
    ) AS completed_until_us
