-- What targets said of deliveries, for people. Cold: written by handlers once a second, not by commits, and not distributed.

-- One delivery, its answer known. A first one that was taken leaves nothing.
CREATE TABLE event_attempts (
    run_id uuid NOT NULL,
    idx integer NOT NULL,
    -- The attempt modulo 32: an event has its latest 32.
    place integer NOT NULL,
    attempt integer NOT NULL,
    start_us bigint NOT NULL,
    took_us bigint NOT NULL,
    -- JSON: what became of it, and what was said.
    sent text NOT NULL,
    PRIMARY KEY (run_id, idx, place)
);
-- For retention.
CREATE INDEX event_attempts_age ON event_attempts (start_us);
