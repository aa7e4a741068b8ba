-- history_delete: dead events that are tried again leave the done queue.
-- When they died is not known here, so the key is one column short.
DELETE FROM event_history
USING unnest($2::uuid[], $3::int[])
    AS gone (run_id, idx)
WHERE event_history.shard_id = $1 AND event_history.run_id = gone.run_id AND event_history.idx = gone.idx
    AND outcome = 'DEAD'
