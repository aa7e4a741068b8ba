-- shard_schedules_delete: schedules that the shard forgets.
-- The range and the hashed set leave the planner no choice: a plan made while the table was empty could otherwise
-- match every row of the shard against the whole array.
DELETE FROM shard_schedules
WHERE shard_id = $1
    AND schedule_uid >= $3 AND schedule_uid <= $4
    AND (schedule_uid IN (SELECT unnest($2::uuid[]))) IS TRUE
