-- runs_change: runs as they are now. Schedule, namespace, launch time, kind and emission never change.
-- Each is found by its key from the end: the old versions of a row that changes with each commit pile up while a snapshot is held,
-- and the index has them before the latest. Not for Citus, which has runs_update.
UPDATE runs SET
    generation = new.generation, policy_uid = new.policy_uid, events = new.events, priority = new.priority,
    state = new.state, reason = new.reason, next_index = new.next_index, succeeded = new.succeeded,
    failed = new.failed, dead = new.dead, expired = new.expired, cancelled = new.cancelled, lost = new.lost,
    cursor_in = new.cursor_in, cursor_out = new.cursor_out, started_us = new.started_us,
    finished_us = new.finished_us
FROM unnest($2::uuid[], $3::uuid[], $4::bigint[], $5::text[], $6::text[], $7::uuid[], $8::bigint[], $9::int[],
    $10::int[], $11::text[], $12::text[], $13::text[], $14::int[], $15::int[], $16::int[], $17::int[], $18::int[],
    $19::int[], $20::int[], $21::text[], $22::text[], $23::bigint[], $24::bigint[], $25::bigint[])
    AS new (run_id, schedule_uid, generation, namespace, schedule_id, policy_uid, launch_us, events, priority, kind,
        state, reason, next_index, succeeded, failed, dead, expired, cancelled, lost, cursor_in, cursor_out,
        emitted_us, started_us, finished_us)
CROSS JOIN LATERAL (
    SELECT ctid AS place FROM runs
    WHERE shard_id = $1 AND run_id >= new.run_id AND run_id <= new.run_id
    ORDER BY run_id DESC
    LIMIT 1
) AS found
WHERE runs.shard_id = $1 AND runs.ctid = found.place
