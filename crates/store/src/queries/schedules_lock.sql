-- schedules_lock: the generations of schedules that are about to change, and where they live, held until the commit.
SELECT uid, generation, shard FROM schedules
WHERE uid {in uuid $1}
ORDER BY uid
{postgres FOR UPDATE}
