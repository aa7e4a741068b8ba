-- schedules_next: those of some schedules that exist; none of them goes before the commit.
SELECT id FROM schedules
WHERE namespace = $1 AND id {in text $2}
ORDER BY id
{postgres FOR KEY SHARE}
