-- runs_pass_over: marks emitted runs whose rows cannot be read, so that the others can be.
UPDATE runs SET state = 'UNREADABLE', reason = 'its row cannot be read'
WHERE shard_id = $1 AND run_id IN (SELECT unhex(value, '-') FROM json_each($2)) AND state = 'EMITTED'
