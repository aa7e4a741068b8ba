-- ended_insert: new batches of ended events.
INSERT INTO ended_batches (shard_id, {ended_batches})
SELECT $1, {ended_batches}
FROM {ended_batches.rows $2}
ON CONFLICT (shard_id, run_id, first_idx, finished_us) DO NOTHING
