-- specs_stored: a shard's run specs as they stand, in the order of their keys.
SELECT schedule_uid, generation, body FROM run_specs
WHERE shard_id = $1 AND (schedule_uid, generation) > ($2, $3)
ORDER BY schedule_uid, generation
LIMIT $4
