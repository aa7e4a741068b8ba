-- inbox_list: messages of a shard's inbox.
SELECT message_id AS uid, body FROM shard_inbox
WHERE shard_id = $1
ORDER BY message_id
LIMIT $2
