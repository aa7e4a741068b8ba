-- submissions_of_run: whether somebody may go on with the items of a run.
SELECT 1
FROM submissions
WHERE schedule_uid = $1 AND run_id = $2
