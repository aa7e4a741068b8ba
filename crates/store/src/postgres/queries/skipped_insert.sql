-- skipped_insert: triggers that made no run; what is recorded stays.
INSERT INTO skipped_triggers (schedule_uid, launch_us, reason, recorded_us)
SELECT schedule_uid, launch_us, reason, recorded_us
FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::bigint[])
    AS new (schedule_uid, launch_us, reason, recorded_us)
ON CONFLICT (schedule_uid, launch_us) DO NOTHING
