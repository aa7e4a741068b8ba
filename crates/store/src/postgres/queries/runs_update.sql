-- runs_update: runs as they are now. Schedule, namespace, launch time, kind and emission never change.
-- An upsert, because it finds each row by its whole key, whatever the table held when this was planned.
INSERT INTO runs ({runs})
SELECT {runs}
FROM {runs.rows $1}
ON CONFLICT (shard_id, run_id) DO UPDATE SET {runs.set excluded}
