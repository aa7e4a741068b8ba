-- schedules_list: schedules of a namespace in the order of their ids. $3 is the first id beyond the prefix in
-- $2's range.
SELECT {schedules as read} FROM schedules
WHERE namespace = $1 AND id >= $2 AND ($3::text IS NULL OR id < $3)
    AND ($4::bool IS NULL OR paused = $4)
    AND labels @> $5::jsonb
    AND ($6::text IS NULL OR id > $6)
    AND ($8::text IS NULL OR strpos(id, $8) > 0)
    AND ($9::text IS NULL OR policy_id = $9)
    AND ($10::text IS NULL OR time_zone = $10)
ORDER BY id
LIMIT $7
