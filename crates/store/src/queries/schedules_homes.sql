-- schedules_homes: of which generation schedules are, and where they live.
SELECT uid, generation, shard FROM schedules
WHERE uid {in uuid $1}
