-- moves_submissions: where the runs of submissions are.
UPDATE submissions SET shard_id = $2
WHERE shard_id = $1 AND run_id {in uuid $3}
