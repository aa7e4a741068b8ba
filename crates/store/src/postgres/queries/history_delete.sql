-- history_delete: dead events that are tried again leave the done queue.
-- The range and the hashed set leave the planner no choice: a plan made while the table was empty could otherwise
-- match every row of the shard against the whole array.
-- When they died is not known here, so the key is one column short.
DELETE FROM event_history
WHERE shard_id = $1
    AND (run_id, idx) >= ($4, $5) AND (run_id, idx) <= ($6, $7)
    AND (
        (run_id, idx) IN (SELECT new.run_id, new.idx FROM {event_keys.rows $2})
    ) IS TRUE
    AND outcome = 'DEAD'
