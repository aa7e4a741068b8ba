-- The done queue: one row an event, or a range of events that ended alike without having started.
-- Rows that are too old are deleted in batches, shard by shard.
CREATE TABLE event_history (
    shard_id INTEGER NOT NULL,
    run_id BLOB NOT NULL,
    -- The first index.
    idx INTEGER NOT NULL,
    -- How many events, from idx on. Ranges of a run do not overlap.
    events INTEGER NOT NULL,
    -- SUCCEEDED, FAILED, DEAD, EXPIRED, CANCELLED or LOST.
    outcome TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    acquired_us INTEGER,
    delivered_us INTEGER,
    finished_us INTEGER NOT NULL,
    message TEXT NOT NULL,
    PRIMARY KEY (shard_id, run_id, idx, finished_us)
) STRICT, WITHOUT ROWID;
-- For retention.
CREATE INDEX event_history_finished ON event_history (shard_id, finished_us);
