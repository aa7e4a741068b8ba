-- calendars_list: calendars of a namespace in the order of their ids. $3 is the first id beyond the prefix in
-- $2's range; no calendar is paused ($4).
SELECT {calendars as read} FROM calendars
WHERE namespace = $1 AND id >= $2 AND ($3 IS NULL OR id < $3)
    AND ($4 IS NULL OR NOT $4)
    AND NOT EXISTS (
        SELECT 1 FROM json_each($5) AS wanted
        WHERE NOT EXISTS (
            SELECT 1 FROM json_each(labels) AS given
            WHERE given.key = wanted.key AND given.value = wanted.value
        )
    )
    AND ($6 IS NULL OR id > $6)
    AND ($8 IS NULL OR instr(id, $8) > 0)
ORDER BY id
LIMIT $7
