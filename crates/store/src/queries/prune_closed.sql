-- prune_closed: what is noted of runs that are too old.
DELETE FROM closed_failures
WHERE shard_id = $1 AND run_id IN (
    SELECT run_id FROM closed_failures
    WHERE shard_id = $1 AND until_us < $2
    LIMIT $3
)
