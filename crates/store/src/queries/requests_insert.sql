-- requests_insert: a request that is not known yet; one that is stays as it is.
INSERT INTO requests ({requests})
SELECT {requests}
FROM {requests.rows $1}
WHERE true
ON CONFLICT (schedule_uid, request_id) DO NOTHING
