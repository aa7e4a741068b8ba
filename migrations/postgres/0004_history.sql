-- The done queue: one row an event, or a range of events that ended alike without having started.
-- One partition a UTC day (made ahead by the application, which drops whole days when they are too old), and a default
-- partition so that an insert never fails.
CREATE TABLE event_history (
    shard_id integer NOT NULL,
    run_id uuid NOT NULL,
    -- The first index.
    idx integer NOT NULL,
    -- How many events, from idx on. Ranges of a run do not overlap.
    events integer NOT NULL,
    -- SUCCEEDED, FAILED, DEAD, EXPIRED, CANCELLED or LOST.
    outcome text NOT NULL,
    attempt integer NOT NULL,
    acquired_us bigint,
    delivered_us bigint,
    finished_us bigint NOT NULL,
    message text NOT NULL,
    PRIMARY KEY (shard_id, run_id, idx, finished_us)
) PARTITION BY RANGE (finished_us);

CREATE TABLE event_history_default PARTITION OF event_history DEFAULT;
