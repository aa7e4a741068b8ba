-- batches_put: batches, new or changed.
INSERT INTO token_batches (shard_id, {token_batches})
SELECT $1, {token_batches}
FROM {token_batches.rows $2}
ON CONFLICT (shard_id, run_id, first_idx) DO UPDATE SET {token_batches.set excluded}
