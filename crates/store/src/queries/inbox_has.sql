-- inbox_has: whether a message with an id in this range waits.
SELECT 1 FROM shard_inbox
WHERE shard_id = $1 AND message_id >= $2 AND message_id <= $3
LIMIT 1
