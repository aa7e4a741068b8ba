-- schedules_insert: new schedules; answers with those whose name was free.
INSERT INTO schedules (uid, namespace, id, spec, payload, policy_uid, policy_id, time_zone, paused, labels,
    generation, shard, created_us, updated_us)
SELECT uid, namespace, id, spec, payload, policy_uid, policy_id, time_zone, paused, labels::jsonb, generation, shard,
    created_us, updated_us
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::uuid[], $7::text[], $8::text[],
    $9::bool[], $10::text[], $11::bigint[], $12::int[], $13::bigint[], $14::bigint[])
    AS new (uid, namespace, id, spec, payload, policy_uid, policy_id, time_zone, paused, labels, generation, shard,
        created_us, updated_us)
ON CONFLICT DO NOTHING
RETURNING uid
