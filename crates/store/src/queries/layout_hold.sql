-- layout_hold: how many queue shards there are and are used; held by whoever changes that, until the commit.
SELECT shards, coalesce(used, shards) AS used FROM shard_layout WHERE one = 1
{postgres FOR UPDATE}
