-- inbox_delete: messages that have been carried out.
-- The range and the hashed set leave the planner no choice: a plan made while the table was empty could otherwise
-- match every row of the shard against the whole array.
DELETE FROM shard_inbox
WHERE shard_id = $1
    AND message_id >= $3 AND message_id <= $4
    AND (message_id IN (SELECT unnest($2::uuid[]))) IS TRUE
