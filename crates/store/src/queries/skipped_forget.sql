-- skipped_forget: skips that are taken back.
DELETE FROM skipped_triggers
WHERE schedule_uid = $1 AND launch_us > $2 AND launch_us <= $3 AND reason = $4
