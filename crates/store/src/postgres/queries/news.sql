-- news: shards that have something to be read: a message, or an emitted run that launches within the given times.
-- cold: every process asks once a second, for all its shards at once, whether there is anything to ask for.
SELECT shard.shard_id FROM queue_shards AS shard
WHERE EXISTS (SELECT 1 FROM shard_inbox AS message WHERE message.shard_id = shard.shard_id)
    OR EXISTS (
        SELECT 1 FROM runs AS run
        WHERE run.shard_id = shard.shard_id AND run.state = 'EMITTED' AND run.launch_us < $1 AND run.launch_us >= $2
    )
ORDER BY shard.shard_id
