-- unstarted_delete: stretches of which all events have started.
-- The range and the hashed set leave the planner no choice: a plan made while the table was empty could otherwise
-- match every row of the shard against the whole array.
DELETE FROM unstarted_events
WHERE shard_id = $1
    AND (run_id, first_idx) >= ($4, $5) AND (run_id, first_idx) <= ($6, $7)
    AND (
        (run_id, first_idx) IN (SELECT new.run_id, new.idx FROM {event_keys.rows $2})
    ) IS TRUE
