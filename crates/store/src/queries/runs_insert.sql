-- runs_insert: new runs; one that is there stays as it is.
INSERT INTO runs ({runs})
SELECT {runs}
FROM {runs.rows $1}
WHERE true
ON CONFLICT (shard_id, run_id) DO NOTHING
