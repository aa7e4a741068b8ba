-- moves_run_rows: runs that move. They keep the shard of their names.
UPDATE runs SET shard_id = $2, born_shard = coalesce(born_shard, $1)
WHERE shard_id = $1 AND run_id {in uuid $3}
