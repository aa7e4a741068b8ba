-- inbox_pauses: orders to pause or resume everything that wait in a shard's inbox.
-- cold: once when shards are added; looks through what waits in that one inbox.
SELECT {shard_inbox}
FROM shard_inbox
WHERE shard_id = $1 AND body LIKE '{"kind":"pause_shard"%'
ORDER BY message_id
