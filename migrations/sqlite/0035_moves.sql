-- What moves to another queue shard when their number is changed.

-- A run that has moved keeps its name, and those of its events: they have the shard in which it was made.
ALTER TABLE runs ADD COLUMN born_shard INTEGER;

-- How many of the queue shards are used: all that lives in others moves. NULL: nothing moves.
ALTER TABLE shard_layout ADD COLUMN used INTEGER;

-- Where a policy or schedule is that has lived in this shard: what comes for it is handed on.
CREATE TABLE moved_homes (
    shard_id INTEGER NOT NULL,
    uid BLOB NOT NULL,
    to_shard INTEGER NOT NULL,
    moved_us INTEGER NOT NULL,
    PRIMARY KEY (shard_id, uid)
) STRICT, WITHOUT ROWID;

-- Where a run is that has been in this shard.
CREATE TABLE moved_runs (
    shard_id INTEGER NOT NULL,
    run_id BLOB NOT NULL,
    to_shard INTEGER NOT NULL,
    moved_us INTEGER NOT NULL,
    PRIMARY KEY (shard_id, run_id)
) STRICT, WITHOUT ROWID;
