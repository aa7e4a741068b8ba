-- history_delete: dead events that are tried again leave the done queue.
-- When they died is not known here, so the key is one column short.
DELETE FROM event_history
WHERE shard_id = $1 AND (run_id, idx) IN (
    SELECT run_id, idx FROM {event_keys.rows $2}
)
    AND outcome = 'DEAD'
