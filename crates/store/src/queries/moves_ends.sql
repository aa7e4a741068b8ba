-- moves_ends: ends of runs that another one is to follow.
-- cold: looks through the inboxes of all shards, once for each shard of which something moves.
SELECT {shard_inbox}
FROM shard_inbox
WHERE body LIKE '{"kind":"run_ended"%'
