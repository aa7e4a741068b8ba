-- prune_requests: requests that are too old.
DELETE FROM requests
WHERE (schedule_uid, request_id) IN (
    SELECT schedule_uid, request_id FROM requests WHERE created_us < $1 LIMIT $2
)
