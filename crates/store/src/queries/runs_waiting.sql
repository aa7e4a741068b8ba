-- runs_waiting: events of a namespace that have not started.
-- cold: for quotas, where there are some; looks in all shards, by the indexes of unfinished runs. INDEXED BY: SQLite
-- would look through all runs of the namespace.
SELECT CAST(coalesce(sum(events - CASE WHEN next_index < 0 THEN -1 - next_index ELSE next_index END), 0) AS bigint) FROM (
    SELECT events, next_index FROM runs {sqlite INDEXED BY runs_emitted}
    WHERE shard_id {in int $2} AND state = 'EMITTED' AND namespace = $1
    UNION ALL
    SELECT events, next_index FROM runs {sqlite INDEXED BY runs_open}
    WHERE shard_id {in int $2} AND state IN ('WAITING', 'RUNNING') AND namespace = $1
) AS unfinished
