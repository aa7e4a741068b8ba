-- prune_windows: complete windows that are too old. The last before the first open one stays, however old: it
-- says how far the emitters are.
DELETE FROM scan_windows
WHERE start_us IN (
    SELECT old.start_us FROM scan_windows AS old
    WHERE old.completed_us IS NOT NULL AND old.end_us < $1
        AND EXISTS (
            SELECT 1 FROM scan_windows AS later
            WHERE later.completed_us IS NOT NULL AND later.start_us > old.start_us
                AND NOT EXISTS (
                    SELECT 1 FROM scan_windows AS open
                    WHERE open.completed_us IS NULL AND open.start_us <= later.start_us
                )
        )
    LIMIT $2
)
