-- unstarted_load: which events of a shard's unfinished runs have not started, where these start theirs key by key.
SELECT {unstarted_events}
FROM unstarted_events
WHERE shard_id = $1
ORDER BY run_id, first_idx
