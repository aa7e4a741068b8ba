-- tokens_list: token rows of a run.
SELECT run_id, idx, state, attempt, failures, checks, due_us, acquired_us, delivered_us, heartbeat_ttl_ms, message
FROM tokens
WHERE shard_id = $1 AND run_id = $2 AND idx >= $3
ORDER BY idx
LIMIT $4
