-- partition_create: room for one UTC day of the done queue. DDL takes no parameters: the driver puts in the name
-- and the two moments.
CREATE TABLE IF NOT EXISTS {name} PARTITION OF event_history FOR VALUES FROM ({from_us}) TO ({to_us})
