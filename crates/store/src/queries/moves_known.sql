-- moves_known: which of some runs a shard has, and how far they are.
SELECT run_id, state FROM runs
WHERE shard_id = $1 AND run_id {in uuid $2}
