-- tokens_put: token rows, new or changed.
INSERT INTO tokens (shard_id, {tokens})
SELECT $1, {tokens}
FROM {tokens.rows $2}
WHERE true
ON CONFLICT (shard_id, run_id, idx) DO UPDATE SET {tokens.set excluded}
