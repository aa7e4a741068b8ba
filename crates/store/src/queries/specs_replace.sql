-- specs_replace: one run spec's row, if it is as it was read.
UPDATE run_specs SET body = $4
WHERE shard_id = $1 AND schedule_uid = $2 AND generation = $3 AND body = $5
