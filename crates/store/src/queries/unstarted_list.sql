-- unstarted_list: which events of a run have not started.
SELECT {unstarted_events}
FROM unstarted_events
WHERE shard_id = $1 AND run_id = $2 AND first_idx >= $3
ORDER BY first_idx
LIMIT $4
