-- requests_get: what is remembered of a request.
SELECT {requests} FROM requests
WHERE schedule_uid = $1 AND request_id = $2
