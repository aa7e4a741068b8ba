-- fill_runs: how many runs each queue shard has that have begun and not ended.
-- cold: for people who ask how full shards are; reads the index of unfinished runs alone. INDEXED BY: SQLite would look
-- through all runs.
SELECT shard_id, count(*) AS number FROM runs {sqlite INDEXED BY runs_open}
WHERE shard_id {in int $1} AND state IN ('WAITING', 'RUNNING')
GROUP BY shard_id
