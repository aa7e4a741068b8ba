-- submissions_made: its run has been made.
UPDATE submissions SET made_us = $3
WHERE schedule_uid = $1 AND request_id = $2 AND made_us IS NULL
