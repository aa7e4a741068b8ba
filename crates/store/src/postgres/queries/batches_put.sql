-- batches_put: batches, new or changed.
INSERT INTO token_batches (shard_id, run_id, first_idx, events, acquired_us, gone, held, delivered_us)
SELECT $1, run_id, first_idx, events, acquired_us, gone, held, delivered_us
FROM unnest($2::uuid[], $3::int[], $4::int[], $5::bigint[], $6::bytea[], $7::bytea[], $8::bigint[])
    AS new (run_id, first_idx, events, acquired_us, gone, held, delivered_us)
ON CONFLICT (shard_id, run_id, first_idx) DO UPDATE SET
    gone = excluded.gone, held = excluded.held, delivered_us = excluded.delivered_us
