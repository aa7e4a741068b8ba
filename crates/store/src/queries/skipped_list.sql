-- skipped_list: triggers of a schedule that made no run, newest first.
SELECT {skipped_triggers} FROM skipped_triggers
WHERE schedule_uid = $1 AND launch_us < $2
ORDER BY launch_us DESC
LIMIT $3
