-- layout_share: how many queue shards there are, once nobody is adding any.
SELECT shards FROM shard_layout WHERE one = 1
{postgres FOR SHARE}
