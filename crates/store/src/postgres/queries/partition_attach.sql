-- partition_attach: a day's table becomes a partition. Whoever inserts or reads goes on; only who holds the default partition, or
-- the day's table, is waited for.
ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ({from_us}) TO ({to_us})
