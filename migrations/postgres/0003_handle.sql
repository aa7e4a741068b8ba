-- Queue shards: leases, inboxes, runs, tokens. Written by a shard's owner, behind the fence; emitters only add runs,
-- and anybody may add to an inbox. These are the hot tables: shard_id is the first column of every key, so that they
-- can be distributed by it.

-- Who owns a shard, and how often it has been written.
CREATE TABLE queue_shards (
    shard_id integer PRIMARY KEY,
    -- Process id; empty where it has none.
    owner text NOT NULL,
    -- Made anew at every takeover.
    lease_id uuid NOT NULL,
    -- Grows by one at every takeover.
    epoch bigint NOT NULL,
    -- Grows by one with every commit of the owner.
    seq bigint NOT NULL,
    -- JSON; NULL while the shard is not paused.
    pause text
) WITH (fillfactor = 50);

-- Processes that take part.
CREATE TABLE members (
    process text PRIMARY KEY,
    -- Comma separated.
    roles text NOT NULL,
    -- Where others reach it by gRPC; empty if nowhere.
    address text NOT NULL,
    -- Others judge by their own clocks whether it changes.
    heartbeat bigint NOT NULL
);

-- Messages to a shard's owner. Never read by a cursor: exactly the rows that were read are deleted.
CREATE TABLE shard_inbox (
    shard_id integer NOT NULL,
    -- Chosen by the sender.
    message_id uuid NOT NULL,
    -- JSON.
    body text NOT NULL,
    PRIMARY KEY (shard_id, message_id)
);

-- Policies as the shard knows them.
CREATE TABLE shard_policies (
    shard_id integer NOT NULL,
    policy_uid uuid NOT NULL,
    -- JSON.
    body text NOT NULL,
    PRIMARY KEY (shard_id, policy_uid)
);

-- Schedules as the shard knows them: fence, pause, cursor.
CREATE TABLE shard_schedules (
    shard_id integer NOT NULL,
    schedule_uid uuid NOT NULL,
    generation bigint NOT NULL,
    -- JSON.
    body text NOT NULL,
    PRIMARY KEY (shard_id, schedule_uid)
);

-- What all runs of one generation of a schedule share.
CREATE TABLE run_specs (
    shard_id integer NOT NULL,
    schedule_uid uuid NOT NULL,
    generation bigint NOT NULL,
    -- When that generation was written.
    created_us bigint NOT NULL,
    -- JSON.
    body text NOT NULL,
    PRIMARY KEY (shard_id, schedule_uid, generation)
);

-- One row a run, however many events it has.
CREATE TABLE runs (
    shard_id integer NOT NULL,
    -- Derived from schedule and launch time.
    run_id uuid NOT NULL,
    schedule_uid uuid NOT NULL,
    generation bigint NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    schedule_id text COLLATE "C" NOT NULL,
    policy_uid uuid,
    launch_us bigint NOT NULL,
    events integer NOT NULL,
    priority integer NOT NULL,
    -- SCHEDULED, MANUAL or BACKFILL.
    kind text NOT NULL,
    -- EMITTED, WAITING, RUNNING, FINISHED, CANCELLED or SKIPPED.
    state text NOT NULL,
    reason text NOT NULL,
    -- Events below this index have been acquired, expired or cancelled.
    next_index integer NOT NULL,
    succeeded integer NOT NULL,
    failed integer NOT NULL,
    dead integer NOT NULL,
    expired integer NOT NULL,
    cancelled integer NOT NULL,
    lost integer NOT NULL,
    cursor_in text,
    cursor_out text,
    emitted_us bigint NOT NULL,
    started_us bigint,
    finished_us bigint,
    PRIMARY KEY (shard_id, run_id)
) WITH (fillfactor = 80);
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
    shard_id integer NOT NULL,
    run_id uuid NOT NULL,
    idx integer NOT NULL,
    -- ACQUIRED, HELD or WAITING.
    state text NOT NULL,
    -- The number of the latest delivery, committed before it is sent.
    attempt integer NOT NULL,
    failures integer NOT NULL,
    checks integer NOT NULL,
    due_us bigint NOT NULL,
    acquired_us bigint NOT NULL,
    delivered_us bigint,
    heartbeat_ttl_ms bigint,
    message text NOT NULL,
    PRIMARY KEY (shard_id, run_id, idx)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);
