-- tokens_put: token rows, new or changed.
INSERT INTO tokens (
    shard_id, run_id, idx, state, attempt, failures, checks, due_us, acquired_us, delivered_us, heartbeat_ttl_ms,
        message
)
SELECT
    $1, run_id, idx, state, attempt, failures, checks, due_us, acquired_us, delivered_us, heartbeat_ttl_ms, message
FROM (
    SELECT
        unhex(value ->> 'run_id', '-') AS run_id,
        value ->> 'idx' AS idx,
        value ->> 'state' AS state,
        value ->> 'attempt' AS attempt,
        value ->> 'failures' AS failures,
        value ->> 'checks' AS checks,
        value ->> 'due_us' AS due_us,
        value ->> 'acquired_us' AS acquired_us,
        value ->> 'delivered_us' AS delivered_us,
        value ->> 'heartbeat_ttl_ms' AS heartbeat_ttl_ms,
        value ->> 'message' AS message
    FROM json_each($2)
) AS new
WHERE true
ON CONFLICT (shard_id, run_id, idx) DO UPDATE SET
    state = excluded.state, attempt = excluded.attempt, failures = excluded.failures, checks = excluded.checks,
    due_us = excluded.due_us, acquired_us = excluded.acquired_us, delivered_us = excluded.delivered_us,
    heartbeat_ttl_ms = excluded.heartbeat_ttl_ms, message = excluded.message
