-- Acquired batches: one row for the events of a run that were acquired at once, until each has ended or got a row of its
-- own in `tokens`.
CREATE TABLE token_batches (
    shard_id INTEGER NOT NULL,
    run_id BLOB NOT NULL,
    -- The index of the first event.
    first_idx INTEGER NOT NULL,
    -- How many events it held at first.
    events INTEGER NOT NULL,
    acquired_us INTEGER NOT NULL,
    -- A bit an event, the first one in the lowest bit of the first byte: it is no longer in the batch.
    gone BLOB NOT NULL,
    -- In the same order: its consumer has it.
    held BLOB NOT NULL,
    -- When the latest of those that are held was delivered.
    delivered_us INTEGER,
    PRIMARY KEY (shard_id, run_id, first_idx)
) STRICT, WITHOUT ROWID;

-- Versions that do not know batches would count too few tokens.
UPDATE schema_compatibility SET oldest = 8;
