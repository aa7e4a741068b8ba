-- prune_submissions: whose run was made so long ago.
DELETE FROM submissions
WHERE (schedule_uid, request_id) IN (
    SELECT schedule_uid, request_id FROM submissions
    WHERE made_us < $1
    LIMIT $2
)
