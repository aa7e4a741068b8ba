-- layout_hold: how many queue shards there are; held by whoever adds some, until the commit.
SELECT shards FROM shard_layout WHERE one = 1
{postgres FOR UPDATE}
