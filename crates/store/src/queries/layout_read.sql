-- layout_read: how many queue shards there are.
SELECT shards FROM shard_layout WHERE one = 1
