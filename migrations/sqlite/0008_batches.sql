-- Acquired batches: one row for the events of a run that were acquired at once, until each has ended or got a row of its
-- own in `tokens`.
CREATE TABLE token_batches (
    shard_id integer NOT NULL,
    run_id blob NOT NULL,
    -- The index of the first event.
    first_idx integer NOT NULL,
    -- How many events it held at first.
    events integer NOT NULL,
    acquired_us integer NOT NULL,
    -- A bit an event, the first one in the lowest bit of the first byte: it is no longer in the batch.
    gone blob NOT NULL,
    -- In the same order: its consumer has it.
    held blob NOT NULL,
    -- When the latest of those that are held was delivered.
    delivered_us integer,
    PRIMARY KEY (shard_id, run_id, first_idx)
) WITHOUT ROWID;

-- Versions that do not know batches would count too few tokens.
UPDATE schema_compatibility SET oldest = 8;
