-- schedules_lock: the generations of schedules that are about to change, held until the commit.
SELECT uid, generation FROM schedules
WHERE uid {in uuid $1}
ORDER BY uid
{postgres FOR UPDATE}
