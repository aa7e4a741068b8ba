-- tasks_checkpoint: how far a task has been emitted.
UPDATE scan_tasks SET checkpoint_slot = $5, checkpoint_uid = $6, checkpoint_ordinal = $7
WHERE start_us = $1 AND zone = $2 AND launch_expression = $3 AND lease_id = $4
