-- requests_count: a request has made more runs.
UPDATE requests SET made = made + $3
WHERE schedule_uid = $1 AND request_id = $2
