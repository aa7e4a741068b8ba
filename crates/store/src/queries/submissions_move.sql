-- submissions_move: more items have come, as long as nobody else has added some.
UPDATE submissions SET items = $3, digest = $4, touched_us = $5, units_max = $8
WHERE schedule_uid = $1 AND request_id = $2 AND items = $6 AND digest = $7 AND made_us IS NULL
