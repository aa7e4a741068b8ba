-- results_put: results of events that end. One that is there already stays as it is.
INSERT INTO event_results (shard_id, {event_results})
SELECT $1, {event_results}
FROM {event_results.rows $2}
ON CONFLICT (shard_id, run_id, idx) DO NOTHING
