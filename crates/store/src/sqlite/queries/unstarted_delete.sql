-- unstarted_delete: stretches of which all events have started.
DELETE FROM unstarted_events
WHERE shard_id = $1 AND (run_id, first_idx) IN (
    SELECT run_id, idx FROM {event_keys.rows $2}
)
