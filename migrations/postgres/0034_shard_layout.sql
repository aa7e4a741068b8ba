-- How many queue shards there are.

-- `installation.shards` is how many there were at first: a home that is not written down is computed by it, for ever.
CREATE TABLE shard_layout (
    one integer PRIMARY KEY CHECK (one = 1),
    -- How many there are now, which are the rows 0 to below this of queue_shards.
    shards integer NOT NULL,
    -- When shards were added last; 0: never.
    changed_us bigint NOT NULL
);
INSERT INTO shard_layout (one, shards, changed_us)
SELECT 1, shards, 0 FROM installation WHERE one = 1;
