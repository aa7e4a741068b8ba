-- moves_schedules_lock: schedules that are to move, held until the commit.
SELECT {schedules that move} FROM schedules
WHERE uid {in uuid $1}
ORDER BY uid
{postgres FOR UPDATE}
