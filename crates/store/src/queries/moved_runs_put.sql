-- moved_runs_put: where runs have gone.
INSERT INTO moved_runs ({moved_runs})
SELECT {moved_runs}
FROM {moved_runs.rows $1}
WHERE true
ON CONFLICT (shard_id, run_id) DO UPDATE SET {moved_runs.set excluded}
