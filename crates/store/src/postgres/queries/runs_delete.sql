-- runs_delete: runs that are withdrawn.
-- The range and the hashed set leave the planner no choice: a plan made while the table was empty could otherwise
-- match every row of the shard against the whole array.
DELETE FROM runs
WHERE shard_id = $1
    AND run_id >= $3 AND run_id <= $4
    AND (run_id IN (SELECT unnest($2::uuid[]))) IS TRUE
