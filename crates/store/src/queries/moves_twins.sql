-- moves_twins: runs that are in another shard as well.
DELETE FROM runs
WHERE shard_id = $1 AND run_id {in uuid $2}
