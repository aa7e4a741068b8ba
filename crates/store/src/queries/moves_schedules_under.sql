-- moves_schedules_under: schedules that move with their policies, held until the commit.
SELECT {schedules that move} FROM schedules
WHERE policy_uid {in uuid $1}
ORDER BY uid
{postgres FOR UPDATE}
