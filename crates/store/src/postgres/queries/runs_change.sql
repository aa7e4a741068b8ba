-- runs_change: runs as they are now. Schedule, namespace, launch time, kind and emission never change.
-- Each is found by its key from the end: the old versions of a row that changes with each commit pile up while a snapshot is held,
-- and the index has them before the latest. Not for Citus, which has runs_update.
UPDATE runs SET {runs.set new}
FROM {runs.rows $2}
CROSS JOIN LATERAL (
    SELECT ctid AS place FROM runs
    WHERE shard_id = $1 AND run_id >= new.run_id AND run_id <= new.run_id
    ORDER BY run_id DESC
    LIMIT 1
) AS found
WHERE runs.shard_id = $1 AND runs.ctid = found.place
