-- history_insert: new rows of the done queue.
INSERT INTO event_history (shard_id, {event_history})
SELECT $1, {event_history}
FROM {event_history.rows $2}
ON CONFLICT (shard_id, run_id, idx, finished_us) DO NOTHING
