-- layout_write: there are so many queue shards from now on.
UPDATE shard_layout SET shards = $1, changed_us = $2 WHERE one = 1
