-- runs_pass_over: marks emitted runs whose rows cannot be read, so that the others can be.
UPDATE runs SET state = 'UNREADABLE', reason = 'its row cannot be read'
WHERE shard_id = $1 AND run_id {in uuid $2} AND state = 'EMITTED'
