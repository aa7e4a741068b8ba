-- moves_inbox: messages that have been handed on to another shard.
DELETE FROM shard_inbox
WHERE shard_id = $1 AND message_id {in uuid $2}
RETURNING message_id
