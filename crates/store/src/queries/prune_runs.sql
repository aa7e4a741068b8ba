-- prune_runs: finished runs that are too old. In SQLite, in the order in which prune_history takes them.
DELETE FROM runs
WHERE shard_id = $1 AND run_id IN (
    SELECT run_id FROM runs
    WHERE shard_id = $1 AND finished_us < $2 AND state IN ('FINISHED', 'CANCELLED', 'SKIPPED')
    ORDER BY finished_us {sqlite , rowid}
    LIMIT $3
)
