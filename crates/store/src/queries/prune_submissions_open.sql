-- prune_submissions_open: that nobody has added to for so long.
DELETE FROM submissions
WHERE (schedule_uid, request_id) IN (
    SELECT schedule_uid, request_id FROM submissions
    WHERE made_us IS NULL AND touched_us < $1
    LIMIT $2
)
