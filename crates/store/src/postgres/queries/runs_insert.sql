-- runs_insert: new runs; one that is there stays as it is.
INSERT INTO runs (
    shard_id, run_id, schedule_uid, generation, namespace, schedule_id, policy_uid, launch_us, events, priority, kind,
    state, reason, next_index, succeeded, failed, dead, expired, cancelled, lost, cursor_in, cursor_out, emitted_us,
    started_us, finished_us
)
SELECT
    shard_id, run_id, schedule_uid, generation, namespace, schedule_id, policy_uid, launch_us, events, priority, kind,
    state, reason, next_index, succeeded, failed, dead, expired, cancelled, lost, cursor_in, cursor_out, emitted_us,
    started_us, finished_us
FROM unnest($1::int[], $2::uuid[], $3::uuid[], $4::bigint[], $5::text[], $6::text[], $7::uuid[], $8::bigint[],
    $9::int[], $10::int[], $11::text[], $12::text[], $13::text[], $14::int[], $15::int[], $16::int[], $17::int[], $18::int[],
    $19::int[], $20::int[], $21::text[], $22::text[], $23::bigint[], $24::bigint[], $25::bigint[])
    AS new (shard_id, run_id, schedule_uid, generation, namespace, schedule_id, policy_uid, launch_us, events, priority,
        kind, state, reason, next_index, succeeded, failed, dead, expired, cancelled, lost, cursor_in, cursor_out,
        emitted_us, started_us, finished_us)
ON CONFLICT (shard_id, run_id) DO NOTHING
