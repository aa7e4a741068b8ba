-- layout_share: how many queue shards there are and are used, once nobody is changing that.
SELECT shards, coalesce(used, shards) AS used FROM shard_layout WHERE one = 1
{postgres FOR SHARE}
