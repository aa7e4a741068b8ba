-- moves_specs: what runs of schedules are made of, in another shard too.
INSERT INTO run_specs (shard_id, schedule_uid, generation, created_us, body)
SELECT $2, schedule_uid, generation, created_us, body FROM run_specs
WHERE shard_id = $1 AND schedule_uid {in uuid $3}
ON CONFLICT (shard_id, schedule_uid, generation) DO NOTHING
