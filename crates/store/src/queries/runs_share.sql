-- runs_share: whether a run is in a shard; it does not leave it until the end of the transaction.
SELECT run_id FROM runs WHERE shard_id = $1 AND run_id = $2 {postgres FOR KEY SHARE}
