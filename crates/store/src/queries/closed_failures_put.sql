-- closed_failures_put: nothing more is to be done about what went wrong in a run that ended then.
INSERT INTO closed_failures (shard_id, run_id, until_us)
VALUES ($1, $2, $3)
ON CONFLICT (shard_id, run_id) DO UPDATE SET until_us = excluded.until_us
WHERE closed_failures.until_us < excluded.until_us
