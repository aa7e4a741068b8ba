-- skipped_insert: triggers that made no run; what is recorded stays.
INSERT INTO skipped_triggers ({skipped_triggers})
SELECT {skipped_triggers}
FROM {skipped_triggers.rows $1}
WHERE true
ON CONFLICT (schedule_uid, launch_us) DO NOTHING
