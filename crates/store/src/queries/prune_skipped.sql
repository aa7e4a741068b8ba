-- prune_skipped: skipped triggers that are too old.
DELETE FROM skipped_triggers
WHERE (schedule_uid, launch_us) IN (
    SELECT schedule_uid, launch_us FROM skipped_triggers WHERE recorded_us < $1 LIMIT $2
)
