-- Queue shards: leases, inboxes, runs, tokens. Written by a shard's owner, behind the fence; emitters only add runs,
-- and anybody may add to an inbox. These are the hot tables: shard_id is the first column of every key, so that they
-- can be distributed by it.

-- Who owns a shard, and how often it has been written.
CREATE TABLE queue_shards (
    shard_id INTEGER PRIMARY KEY,
    -- Process id; empty where it has none.
    owner TEXT NOT NULL,
    -- Made anew at every takeover.
    lease_id BLOB NOT NULL,
    -- Grows by one at every takeover.
    epoch INTEGER NOT NULL,
    -- Grows by one with every commit of the owner.
    seq INTEGER NOT NULL,
    -- JSON; NULL while the shard is not paused.
    pause TEXT
) STRICT;

-- Processes that take part.
CREATE TABLE members (
    process TEXT PRIMARY KEY,
    -- Comma separated.
    roles TEXT NOT NULL,
    -- Where others reach it by gRPC; empty if nowhere.
    address TEXT NOT NULL,
    -- Others judge by their own clocks whether it changes.
    heartbeat INTEGER NOT NULL
) STRICT;

-- Messages to a shard's owner. Never read by a cursor: exactly the rows that were read are deleted.
CREATE TABLE shard_inbox (
    shard_id INTEGER NOT NULL,
    -- Chosen by the sender.
    message_id BLOB NOT NULL,
    -- JSON.
    body TEXT NOT NULL,
    PRIMARY KEY (shard_id, message_id)
) STRICT;

-- Policies as the shard knows them.
CREATE TABLE shard_policies (
    shard_id INTEGER NOT NULL,
    policy_uid BLOB NOT NULL,
    -- JSON.
    body TEXT NOT NULL,
    PRIMARY KEY (shard_id, policy_uid)
) STRICT;

-- Schedules as the shard knows them: fence, pause, cursor.
CREATE TABLE shard_schedules (
    shard_id INTEGER NOT NULL,
    schedule_uid BLOB NOT NULL,
    generation INTEGER NOT NULL,
    -- JSON.
    body TEXT NOT NULL,
    PRIMARY KEY (shard_id, schedule_uid)
) STRICT;

-- What all runs of one generation of a schedule share.
CREATE TABLE run_specs (
    shard_id INTEGER NOT NULL,
    schedule_uid BLOB NOT NULL,
    generation INTEGER NOT NULL,
    -- When that generation was written.
    created_us INTEGER NOT NULL,
    -- JSON.
    body TEXT NOT NULL,
    PRIMARY KEY (shard_id, schedule_uid, generation)
) STRICT;

-- One row a run, however many events it has.
CREATE TABLE runs (
    shard_id INTEGER NOT NULL,
    -- Derived from schedule and launch time.
    run_id BLOB NOT NULL,
    schedule_uid BLOB NOT NULL,
    generation INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    schedule_id TEXT NOT NULL,
    policy_uid BLOB,
    launch_us INTEGER NOT NULL,
    events INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    -- SCHEDULED, MANUAL or BACKFILL.
    kind TEXT NOT NULL,
    -- EMITTED, WAITING, RUNNING, FINISHED, CANCELLED or SKIPPED.
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    -- Events below this index have been acquired, expired or cancelled.
    next_index INTEGER NOT NULL,
    succeeded INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    dead INTEGER NOT NULL,
    expired INTEGER NOT NULL,
    cancelled INTEGER NOT NULL,
    lost INTEGER NOT NULL,
    cursor_in TEXT,
    cursor_out TEXT,
    emitted_us INTEGER NOT NULL,
    started_us INTEGER,
    finished_us INTEGER,
    PRIMARY KEY (shard_id, run_id)
) STRICT;
-- For the owner: what has been handed over and not read yet.
CREATE INDEX runs_emitted ON runs (shard_id, launch_us, run_id) WHERE state = 'EMITTED';
-- For the owner after a takeover.
CREATE INDEX runs_open ON runs (shard_id, run_id) WHERE state IN ('WAITING', 'RUNNING');
-- For retention.
CREATE INDEX runs_finished ON runs (shard_id, finished_us) WHERE finished_us IS NOT NULL;
-- cold: users list runs over all shards.
CREATE INDEX runs_namespace ON runs (namespace, launch_us, run_id);
-- cold: users list the runs of a schedule, whose shard may have changed.
CREATE INDEX runs_schedule ON runs (schedule_uid, launch_us, run_id);

-- Acquired, unfinished events. A row comes before the first delivery and goes with the release.
CREATE TABLE tokens (
    shard_id INTEGER NOT NULL,
    run_id BLOB NOT NULL,
    idx INTEGER NOT NULL,
    -- ACQUIRED, HELD or WAITING.
    state TEXT NOT NULL,
    -- The number of the latest delivery, committed before it is sent.
    attempt INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    checks INTEGER NOT NULL,
    due_us INTEGER NOT NULL,
    acquired_us INTEGER NOT NULL,
    delivered_us INTEGER,
    heartbeat_ttl_ms INTEGER,
    message TEXT NOT NULL,
    PRIMARY KEY (shard_id, run_id, idx)
) STRICT, WITHOUT ROWID;
