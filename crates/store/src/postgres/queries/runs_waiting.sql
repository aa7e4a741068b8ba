-- runs_waiting: events of a namespace that have not started.
-- cold: for quotas, where there are some; looks in all shards, by the indexes of unfinished runs.
SELECT coalesce(sum(events - next_index), 0)::bigint FROM (
    SELECT events, next_index FROM runs
    WHERE shard_id = ANY($2::int[]) AND state = 'EMITTED' AND namespace = $1
    UNION ALL
    SELECT events, next_index FROM runs
    WHERE shard_id = ANY($2::int[]) AND state IN ('WAITING', 'RUNNING') AND namespace = $1
) AS unfinished
