-- specs_insert: run specs of new generations; one that is there stays.
INSERT INTO run_specs (shard_id, schedule_uid, generation, created_us, body)
SELECT shard_id, schedule_uid, generation, created_us, body
FROM unnest($1::int[], $2::uuid[], $3::bigint[], $4::bigint[], $5::text[])
    AS new (shard_id, schedule_uid, generation, created_us, body)
ON CONFLICT (shard_id, schedule_uid, generation) DO NOTHING
