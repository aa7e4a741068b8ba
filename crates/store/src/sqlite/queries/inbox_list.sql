-- inbox_list: messages of a shard's inbox, without those that have been passed over.
SELECT message_id AS uid, body FROM shard_inbox
WHERE shard_id = $1 AND message_id NOT IN (SELECT unhex(value, '-') FROM json_each($2))
ORDER BY message_id
LIMIT $3
