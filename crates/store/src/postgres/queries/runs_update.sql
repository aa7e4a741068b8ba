-- runs_update: runs as they are now. Schedule, namespace, launch time, kind and emission never change.
UPDATE runs SET
    generation = new.generation, policy_uid = new.policy_uid, events = new.events, priority = new.priority,
    state = new.state, reason = new.reason, next_index = new.next_index, succeeded = new.succeeded,
    failed = new.failed, dead = new.dead, expired = new.expired, cancelled = new.cancelled, lost = new.lost,
    cursor_in = new.cursor_in, cursor_out = new.cursor_out, started_us = new.started_us,
    finished_us = new.finished_us
FROM unnest($2::uuid[], $3::bigint[], $4::uuid[], $5::int[], $6::int[], $7::text[], $8::text[], $9::int[],
    $10::int[], $11::int[], $12::int[], $13::int[], $14::int[], $15::int[], $16::text[], $17::text[], $18::bigint[],
    $19::bigint[])
    AS new (run_id, generation, policy_uid, events, priority, state, reason, next_index, succeeded, failed, dead,
        expired, cancelled, lost, cursor_in, cursor_out, started_us, finished_us)
WHERE runs.shard_id = $1 AND runs.run_id = new.run_id
