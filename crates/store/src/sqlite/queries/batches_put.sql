-- batches_put: batches, new or changed.
INSERT INTO token_batches (shard_id, run_id, first_idx, events, acquired_us, gone, held, delivered_us)
SELECT $1, run_id, first_idx, events, acquired_us, gone, held, delivered_us
FROM (
    SELECT
        unhex(value ->> 'run_id', '-') AS run_id,
        value ->> 'first_idx' AS first_idx,
        value ->> 'events' AS events,
        value ->> 'acquired_us' AS acquired_us,
        unhex(value ->> 'gone') AS gone,
        unhex(value ->> 'held') AS held,
        value ->> 'delivered_us' AS delivered_us
    FROM json_each($2)
) AS new
WHERE true
ON CONFLICT (shard_id, run_id, first_idx) DO UPDATE SET
    gone = excluded.gone, held = excluded.held, delivered_us = excluded.delivered_us
