-- schedules_before: how many schedules stand one before the other above one, at most $3.
WITH RECURSIVE before (id, places) AS (
    SELECT stored.id, CAST(1 AS bigint) FROM schedules AS stored WHERE stored.namespace = $1 AND stored.next_id = $2
    UNION
    SELECT stored.id, before.places + 1
    FROM before
    CROSS JOIN schedules AS stored
    WHERE stored.namespace = $1 AND stored.next_id = before.id AND before.places < $3
)
SELECT coalesce(max(places), 0) FROM before
