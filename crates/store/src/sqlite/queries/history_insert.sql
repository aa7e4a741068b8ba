-- history_insert: new rows of the done queue.
INSERT INTO event_history (shard_id, run_id, idx, events, outcome, attempt, acquired_us, delivered_us, finished_us,
    message)
SELECT $1, run_id, idx, events, outcome, attempt, acquired_us, delivered_us, finished_us, message
FROM (
    SELECT
        unhex(value ->> 'run_id', '-') AS run_id,
        value ->> 'idx' AS idx,
        value ->> 'events' AS events,
        value ->> 'outcome' AS outcome,
        value ->> 'attempt' AS attempt,
        value ->> 'acquired_us' AS acquired_us,
        value ->> 'delivered_us' AS delivered_us,
        value ->> 'finished_us' AS finished_us,
        value ->> 'message' AS message
    FROM json_each($2)
) AS new
WHERE true
ON CONFLICT (shard_id, run_id, idx, finished_us) DO NOTHING
