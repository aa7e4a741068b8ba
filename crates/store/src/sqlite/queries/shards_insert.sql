-- shards_insert: makes the queue shards' rows, once. Nobody owns them yet.
INSERT INTO queue_shards (shard_id, owner, lease_id, epoch, seq)
SELECT shard_id, '', $1, 0, 0
FROM (
    SELECT
        value ->> 'shard_id' AS shard_id
    FROM json_each($2)
) AS new
WHERE true
ON CONFLICT (shard_id) DO NOTHING
