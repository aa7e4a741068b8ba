-- inbox_insert: messages for a shard's owner; one that is there stays.
INSERT INTO shard_inbox (shard_id, {shard_inbox})
SELECT $1, {shard_inbox}
FROM {shard_inbox.rows $2}
WHERE true
ON CONFLICT (shard_id, message_id) DO NOTHING
