-- layout_read: how many queue shards there are, and how many of them are used.
SELECT shards, coalesce(used, shards) AS used FROM shard_layout WHERE one = 1
