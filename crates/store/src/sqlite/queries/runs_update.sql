-- runs_update: runs as they are now. Schedule, namespace, launch time, kind and emission never change.
INSERT INTO runs ({runs})
SELECT {runs}
FROM {runs.rows $1}
WHERE true
ON CONFLICT (shard_id, run_id) DO UPDATE SET {runs.set excluded}
