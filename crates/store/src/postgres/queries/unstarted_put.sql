-- unstarted_put: which events have not started.
INSERT INTO unstarted_events (shard_id, {unstarted_events})
SELECT $1, {unstarted_events}
FROM {unstarted_events.rows $2}
ON CONFLICT (shard_id, run_id, first_idx) DO UPDATE SET {unstarted_events.set excluded}
