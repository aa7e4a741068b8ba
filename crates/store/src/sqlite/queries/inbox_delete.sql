-- inbox_delete: messages that have been carried out.
DELETE FROM shard_inbox WHERE shard_id = $1 AND message_id IN (SELECT unhex(value, '-') FROM json_each($2))
