-- layout_used: how many of the queue shards are used, once that has been said.
SELECT used FROM shard_layout WHERE one = 1 AND used IS NOT NULL
