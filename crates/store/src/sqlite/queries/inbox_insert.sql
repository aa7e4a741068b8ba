-- inbox_insert: messages for a shard's owner; one that is there stays.
INSERT INTO shard_inbox (shard_id, message_id, body)
SELECT $1, message_id, body
FROM (
    SELECT
        unhex(value ->> 'message_id', '-') AS message_id,
        value ->> 'body' AS body
    FROM json_each($2)
) AS new
WHERE true
ON CONFLICT (shard_id, message_id) DO NOTHING
