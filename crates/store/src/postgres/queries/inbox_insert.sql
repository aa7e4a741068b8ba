-- inbox_insert: messages for a shard's owner; one that is there stays.
INSERT INTO shard_inbox (shard_id, message_id, body)
SELECT $1, message_id, body
FROM unnest($2::uuid[], $3::text[])
    AS new (message_id, body)
ON CONFLICT (shard_id, message_id) DO NOTHING
