-- runs_delete: runs that are withdrawn.
DELETE FROM runs WHERE shard_id = $1 AND run_id IN (SELECT unhex(value, '-') FROM json_each($2))
