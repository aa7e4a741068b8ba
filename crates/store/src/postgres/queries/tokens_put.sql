-- tokens_put: token rows, new or changed.
INSERT INTO tokens (
    shard_id, run_id, idx, state, attempt, failures, checks, due_us, acquired_us, delivered_us, heartbeat_ttl_ms,
        message
)
SELECT
    $1, run_id, idx, state, attempt, failures, checks, due_us, acquired_us, delivered_us, heartbeat_ttl_ms, message
FROM unnest($2::uuid[], $3::int[], $4::text[], $5::int[], $6::int[], $7::int[], $8::bigint[], $9::bigint[],
    $10::bigint[], $11::bigint[], $12::text[])
    AS new (run_id, idx, state, attempt, failures, checks, due_us, acquired_us, delivered_us, heartbeat_ttl_ms,
        message)
ON CONFLICT (shard_id, run_id, idx) DO UPDATE SET
    state = excluded.state, attempt = excluded.attempt, failures = excluded.failures, checks = excluded.checks,
    due_us = excluded.due_us, acquired_us = excluded.acquired_us, delivered_us = excluded.delivered_us,
    heartbeat_ttl_ms = excluded.heartbeat_ttl_ms, message = excluded.message
