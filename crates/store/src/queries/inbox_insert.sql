-- inbox_insert: messages for a shard's owner; one that is there stays.
INSERT INTO shard_inbox (shard_id, {messages of shard_inbox})
SELECT $1, {messages of shard_inbox}
FROM {messages of shard_inbox.rows $2}
WHERE true
ON CONFLICT (shard_id, message_id) DO NOTHING
