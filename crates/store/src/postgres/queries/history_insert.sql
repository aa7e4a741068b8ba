-- history_insert: new rows of the done queue.
INSERT INTO event_history (shard_id, run_id, idx, events, outcome, attempt, acquired_us, delivered_us, finished_us,
    message)
SELECT $1, run_id, idx, events, outcome, attempt, acquired_us, delivered_us, finished_us, message
FROM unnest($2::uuid[], $3::int[], $4::int[], $5::text[], $6::int[], $7::bigint[], $8::bigint[], $9::bigint[],
    $10::text[])
    AS new (run_id, idx, events, outcome, attempt, acquired_us, delivered_us, finished_us, message)
ON CONFLICT (shard_id, run_id, idx, finished_us) DO NOTHING
