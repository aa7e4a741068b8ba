-- Runs that start their events key by key: which of them have started.

-- The events below it have been sorted by their keys; which of them have not started is in unstarted_events. Absent where
-- events start in the order of their indexes. Where it is set, next_index is how many events have started, and is written as
-- -1 less that number: a process of the version before, which would start others, takes such a run for one that it cannot read.
ALTER TABLE runs ADD COLUMN sorted_to integer;

-- Which of 2,048 events have not started. Without a row, all of those below the run's sorted_to have.
CREATE TABLE unstarted_events (
    shard_id integer NOT NULL,
    run_id uuid NOT NULL,
    -- The index of the first event.
    first_idx integer NOT NULL,
    -- A bit an event that has not started, the first in the lowest bit of the first byte.
    bits bytea NOT NULL,
    PRIMARY KEY (shard_id, run_id, first_idx)
);
