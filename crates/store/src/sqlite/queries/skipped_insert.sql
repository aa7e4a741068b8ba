-- skipped_insert: triggers that made no run; what is recorded stays.
INSERT INTO skipped_triggers (schedule_uid, launch_us, reason, recorded_us)
SELECT schedule_uid, launch_us, reason, recorded_us
FROM (
    SELECT
        unhex(value ->> 'schedule_uid', '-') AS schedule_uid,
        value ->> 'launch_us' AS launch_us,
        value ->> 'reason' AS reason,
        value ->> 'recorded_us' AS recorded_us
    FROM json_each($1)
) AS new
WHERE true
ON CONFLICT (schedule_uid, launch_us) DO NOTHING
