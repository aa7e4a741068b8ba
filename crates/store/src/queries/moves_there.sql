-- moves_there: which schedules exist.
SELECT uid FROM schedules
WHERE uid {in uuid $1}
