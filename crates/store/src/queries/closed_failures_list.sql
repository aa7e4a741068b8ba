-- closed_failures_list: which of some runs of a shard somebody has closed, and up to which end.
SELECT run_id, until_us
FROM closed_failures
WHERE shard_id = $1 AND run_id {in uuid $2}
