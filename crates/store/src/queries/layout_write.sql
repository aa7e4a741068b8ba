-- layout_write: how many queue shards there are and are used from now on.
UPDATE shard_layout SET shards = $1, used = $2, changed_us = $3 WHERE one = 1
