-- shards_insert: makes queue shards' rows, once. Nobody owns them yet.
INSERT INTO queue_shards (shard_id, owner, lease_id, epoch, seq, pause)
SELECT shard_id, '', $1, 0, 0, $2
FROM (
    SELECT
        value AS shard_id
    FROM json_each($3)
) AS new
WHERE true
ON CONFLICT (shard_id) DO NOTHING
