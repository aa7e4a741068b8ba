-- moved_runs_old: which runs have gone long ago, and where, a page by id.
SELECT run_id, to_shard FROM moved_runs
WHERE shard_id = $1 AND run_id > $2 AND moved_us < $3
ORDER BY run_id
LIMIT $4
