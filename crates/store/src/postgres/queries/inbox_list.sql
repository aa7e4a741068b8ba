-- inbox_list: messages of a shard's inbox, without those that have been passed over.
-- In this form they are hashed in a generic plan, too.
SELECT message_id AS uid, body FROM shard_inbox
WHERE shard_id = $1 AND (message_id IN (SELECT unnest($2::uuid[]))) IS NOT TRUE
ORDER BY message_id
LIMIT $3
