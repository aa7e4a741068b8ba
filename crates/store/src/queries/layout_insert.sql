-- layout_insert: how many queue shards a new installation has, once.
INSERT INTO shard_layout (one, shards, changed_us)
SELECT 1, shards, 0 FROM installation WHERE one = 1
ON CONFLICT (one) DO NOTHING
