-- runs_update: runs as they are now. Schedule, namespace, launch time, kind and emission never change.
-- An upsert, because it finds each row by its whole key, whatever the table held when this was planned.
INSERT INTO runs (
    shard_id, run_id, schedule_uid, generation, namespace, schedule_id, policy_uid, launch_us, events, priority, kind,
    state, reason, next_index, succeeded, failed, dead, expired, cancelled, lost, cursor_in, cursor_out, emitted_us,
    started_us, finished_us
)
SELECT
    $1, run_id, schedule_uid, generation, namespace, schedule_id, policy_uid, launch_us, events, priority, kind,
    state, reason, next_index, succeeded, failed, dead, expired, cancelled, lost, cursor_in, cursor_out, emitted_us,
    started_us, finished_us
FROM unnest($2::uuid[], $3::uuid[], $4::bigint[], $5::text[], $6::text[], $7::uuid[], $8::bigint[], $9::int[],
    $10::int[], $11::text[], $12::text[], $13::text[], $14::int[], $15::int[], $16::int[], $17::int[], $18::int[],
    $19::int[], $20::int[], $21::text[], $22::text[], $23::bigint[], $24::bigint[], $25::bigint[])
    AS new (run_id, schedule_uid, generation, namespace, schedule_id, policy_uid, launch_us, events, priority, kind,
        state, reason, next_index, succeeded, failed, dead, expired, cancelled, lost, cursor_in, cursor_out,
        emitted_us, started_us, finished_us)
ON CONFLICT (shard_id, run_id) DO UPDATE SET
    generation = excluded.generation, policy_uid = excluded.policy_uid, events = excluded.events,
    priority = excluded.priority, state = excluded.state, reason = excluded.reason,
    next_index = excluded.next_index, succeeded = excluded.succeeded, failed = excluded.failed,
    dead = excluded.dead, expired = excluded.expired, cancelled = excluded.cancelled, lost = excluded.lost,
    cursor_in = excluded.cursor_in, cursor_out = excluded.cursor_out, started_us = excluded.started_us,
    finished_us = excluded.finished_us
