-- What moves to another queue shard when their number is changed.

-- A run that has moved keeps its name, and those of its events: they have the shard in which it was made.
ALTER TABLE runs ADD COLUMN born_shard integer;

-- How many of the queue shards are used: all that lives in others moves. NULL: nothing moves.
ALTER TABLE shard_layout ADD COLUMN used integer;

-- Where a policy or schedule is that has lived in this shard: what comes for it is handed on.
CREATE TABLE moved_homes (
    shard_id integer NOT NULL,
    uid uuid NOT NULL,
    to_shard integer NOT NULL,
    moved_us bigint NOT NULL,
    PRIMARY KEY (shard_id, uid)
);

-- Where a run is that has been in this shard.
CREATE TABLE moved_runs (
    shard_id integer NOT NULL,
    run_id uuid NOT NULL,
    to_shard integer NOT NULL,
    moved_us bigint NOT NULL,
    PRIMARY KEY (shard_id, run_id)
);
