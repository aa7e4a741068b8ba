-- schedules_replace: one schedule's row, if it is as it was read. Nothing but its secrets changes, so no generation does.
UPDATE schedules SET spec = $2, payload = $3, items = $4
WHERE uid = $1 AND spec = $5 AND payload = $6 AND items = $7
