-- moves_submitting: schedules to which items are being submitted, by when the latest have come.
SELECT schedule_uid FROM submissions
WHERE schedule_uid {in uuid $1} AND made_us IS NULL AND touched_us > $2
