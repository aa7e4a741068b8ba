-- Results of events.

-- What the work of an event has come to. It goes after its run.
CREATE TABLE event_results (
    shard_id integer NOT NULL,
    run_id uuid NOT NULL,
    idx integer NOT NULL,
    ended_us bigint NOT NULL,
    -- JSON. Sealed where secrets are.
    body text NOT NULL,
    PRIMARY KEY (shard_id, run_id, idx)
);
-- For retention.
CREATE INDEX event_results_age ON event_results (shard_id, ended_us);

-- How many bytes, and items, the results of a run have.
ALTER TABLE runs ADD COLUMN result_bytes integer NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN result_count integer NOT NULL DEFAULT 0;
