-- Results of events.

-- What the work of an event has come to. It goes after its run.
CREATE TABLE event_results (
    shard_id INTEGER NOT NULL,
    run_id BLOB NOT NULL,
    idx INTEGER NOT NULL,
    ended_us INTEGER NOT NULL,
    -- JSON. Sealed where secrets are.
    body TEXT NOT NULL,
    PRIMARY KEY (shard_id, run_id, idx)
) STRICT;
-- For retention.
CREATE INDEX event_results_age ON event_results (shard_id, ended_us);

-- How many bytes, and items, the results of a run have.
ALTER TABLE runs ADD COLUMN result_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN result_count INTEGER NOT NULL DEFAULT 0;
