-- runs_listing: runs of some shards whose items are to be fetched, without some: the next of each schedule first, and of each
-- namespace so many at most.
-- cold: for a process, about all of its shards at once; by the index of what is in no other index, which holds little else.
-- INDEXED BY: SQLite would look through all runs of the shards.
SELECT {runs}
FROM (
    SELECT {runs}, turn, row_number() OVER (PARTITION BY namespace ORDER BY turn, launch_us, run_id) AS place
    FROM (
        SELECT {runs}, row_number() OVER (PARTITION BY schedule_uid ORDER BY launch_us, run_id) AS turn
        FROM runs {sqlite INDEXED BY runs_unknown}
        WHERE shard_id {in int $1}
            AND state NOT IN ('EMITTED', 'WAITING', 'RUNNING', 'FINISHED', 'CANCELLED', 'SKIPPED')
            AND state = 'LISTING' AND launch_us <= $2 AND NOT (run_id {in uuid $3})
    ) AS listing
) AS listed
WHERE place <= $4
ORDER BY place, launch_us, run_id
LIMIT $5
