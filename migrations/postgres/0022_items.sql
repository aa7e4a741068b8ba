-- Items: what the events of submitted runs carry.

-- A page of the items of a run that follow one another. Pages come before their run, and go after it.
CREATE TABLE item_pages (
    shard_id integer NOT NULL,
    run_id uuid NOT NULL,
    -- The index of the first event.
    first_idx integer NOT NULL,
    -- How many.
    events integer NOT NULL,
    -- The hashes of their keys, ascending, four bytes each.
    keys bytea NOT NULL,
    -- A line an item: its key, a tab, JSON. Sealed where secrets are.
    body text NOT NULL,
    PRIMARY KEY (shard_id, run_id, first_idx)
);

-- Runs with items, made or not.
CREATE TABLE item_runs (
    shard_id integer NOT NULL,
    run_id uuid NOT NULL,
    schedule_uid uuid NOT NULL,
    created_us bigint NOT NULL,
    -- JSON that all its events carry, laid over the schedule's; may be empty. Sealed where secrets are.
    payload text NOT NULL,
    -- Whether its run has been made.
    made boolean NOT NULL,
    PRIMARY KEY (shard_id, run_id)
);
-- For retention: those whose run has not been made, and all by their age.
CREATE INDEX item_runs_age ON item_runs (shard_id, made, created_us);

-- Submissions by request id: how far each has come. Cold: not by shard, as a schedule may have moved.
CREATE TABLE submissions (
    schedule_uid uuid NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    shard_id integer NOT NULL,
    run_id uuid NOT NULL,
    launch_us bigint NOT NULL,
    -- What was asked for, as JSON: what a repetition is compared with.
    asked text NOT NULL,
    created_us bigint NOT NULL,
    -- When the latest of its items came.
    touched_us bigint NOT NULL,
    -- How many items are in its pages, and their digest.
    items integer NOT NULL,
    digest bytea NOT NULL,
    -- When its run was made.
    made_us bigint,
    PRIMARY KEY (schedule_uid, request_id),
    UNIQUE (run_id)
);
-- For retention.
CREATE INDEX submissions_made ON submissions (made_us) WHERE made_us IS NOT NULL;
CREATE INDEX submissions_open ON submissions (touched_us) WHERE made_us IS NULL;
