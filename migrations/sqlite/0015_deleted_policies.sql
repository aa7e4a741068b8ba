-- When a policy was deleted: its shard keeps it for a while, for runs that were made before.
ALTER TABLE shard_policies ADD COLUMN deleted_us INTEGER;
