-- specs_insert: run specs of new generations; one that is there stays.
INSERT INTO run_specs ({run_specs})
SELECT {run_specs}
FROM {run_specs.rows $1}
WHERE true
ON CONFLICT (shard_id, schedule_uid, generation) DO NOTHING
