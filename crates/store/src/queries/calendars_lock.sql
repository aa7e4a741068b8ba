-- calendars_lock: the generation of a calendar that is about to change, held until the commit.
SELECT uid, generation FROM calendars
WHERE uid = $1
{postgres FOR UPDATE}
