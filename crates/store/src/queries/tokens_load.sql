-- tokens_load: the tokens of a shard's unfinished runs.
SELECT run_id, idx, state, attempt, failures, checks, due_us, acquired_us, delivered_us, heartbeat_ttl_ms, message
FROM tokens
WHERE shard_id = $1
ORDER BY run_id, idx
