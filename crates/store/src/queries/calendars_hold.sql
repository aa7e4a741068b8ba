-- calendars_hold: of which generation the dates of calendars are; none of them changes before the commit.
SELECT uid, dates_generation FROM calendars
WHERE uid {in uuid $1}
ORDER BY uid
{postgres FOR SHARE}
