-- calendars_list: calendars of a namespace in the order of their ids. $3 is the first id beyond the prefix in
-- $2's range; no calendar is paused ($4).
SELECT {calendars as read} FROM calendars
WHERE namespace = $1 AND id >= $2 AND ($3::text IS NULL OR id < $3)
    AND ($4::bool IS NULL OR NOT $4::bool)
    AND labels @> $5::jsonb
    AND ($6::text IS NULL OR id > $6)
    AND ($8::text IS NULL OR strpos(id, $8) > 0)
ORDER BY id
LIMIT $7
