-- requests_move: a request has come further, if it is where it was.
UPDATE requests SET progress = $4
WHERE schedule_uid = $1 AND request_id = $2 AND progress = $3
