-- What targets said of deliveries, for people. Cold: written by handlers once a second, not by commits, and not distributed.

-- One delivery, its answer known. A first one that was taken leaves nothing.
CREATE TABLE event_attempts (
    run_id BLOB NOT NULL,
    idx INTEGER NOT NULL,
    -- The attempt modulo 32: an event has its latest 32.
    place INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    start_us INTEGER NOT NULL,
    took_us INTEGER NOT NULL,
    -- JSON: what became of it, and what was said.
    sent TEXT NOT NULL,
    PRIMARY KEY (run_id, idx, place)
) STRICT, WITHOUT ROWID;
-- For retention.
CREATE INDEX event_attempts_age ON event_attempts (start_us);
