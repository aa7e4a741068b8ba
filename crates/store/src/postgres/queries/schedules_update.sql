-- schedules_update: schedules as they are from now on.
UPDATE schedules SET
    spec = new.spec, payload = new.payload, policy_uid = new.policy_uid, policy_id = new.policy_id,
    time_zone = new.time_zone, paused = new.paused, labels = new.labels::jsonb, generation = new.generation,
    shard = new.shard, updated_us = new.updated_us
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::uuid[], $7::text[], $8::text[],
    $9::bool[], $10::text[], $11::bigint[], $12::int[], $13::bigint[], $14::bigint[])
    AS new (uid, namespace, id, spec, payload, policy_uid, policy_id, time_zone, paused, labels, generation, shard,
        created_us, updated_us)
WHERE schedules.uid = new.uid
