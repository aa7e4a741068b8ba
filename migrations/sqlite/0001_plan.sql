-- Schedules, policies, their children, and who changed what. Written by the Schedule Master.
-- Times are microseconds since the Unix epoch, from the application: no statement reads a clock.

-- What every process of an installation shares. One row, made once.
CREATE TABLE installation (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    id BLOB NOT NULL,
    -- Key of the event ids' seals, 32 bytes.
    secret BLOB NOT NULL,
    -- How many queue shards there are, for ever.
    shards INTEGER NOT NULL
) STRICT;

-- Throttling policies.
CREATE TABLE policies (
    uid BLOB PRIMARY KEY,
    namespace TEXT NOT NULL,
    id TEXT NOT NULL,
    -- The whole policy as JSON; the columns beside it are copies to look for.
    spec TEXT NOT NULL,
    -- The queue shard in which it lives.
    shard INTEGER NOT NULL,
    paused INTEGER NOT NULL,
    -- Object of strings.
    labels TEXT NOT NULL,
    -- Grows by one with every change; the etag.
    generation INTEGER NOT NULL,
    updated_us INTEGER NOT NULL,
    UNIQUE (namespace, id)
) STRICT;

-- Schedules. Triggering never writes here.
CREATE TABLE schedules (
    uid BLOB PRIMARY KEY,
    namespace TEXT NOT NULL,
    id TEXT NOT NULL,
    -- The schedule as JSON, without its payload; the columns beside it are copies to look for.
    spec TEXT NOT NULL,
    -- The payload on its own, so that a scan does not read it.
    payload TEXT NOT NULL,
    -- A policy in use cannot go.
    policy_uid BLOB REFERENCES policies (uid),
    -- The policy's id, for filters.
    policy_id TEXT,
    time_zone TEXT NOT NULL,
    paused INTEGER NOT NULL,
    -- Object of strings.
    labels TEXT NOT NULL,
    -- Grows by one with every change; the etag.
    generation INTEGER NOT NULL,
    -- The queue shard that owns its runs.
    shard INTEGER NOT NULL,
    created_us INTEGER NOT NULL,
    updated_us INTEGER NOT NULL,
    UNIQUE (namespace, id)
) STRICT;
CREATE INDEX schedules_policy ON schedules (policy_uid, id);

-- The launch index: one row a child. A scan reads (zone, launch expression, range of slots) in key order.
CREATE TABLE schedule_children (
    zone TEXT NOT NULL,
    launch_expression TEXT NOT NULL,
    -- Minute of the hour, or what the launch class counts in.
    slot INTEGER NOT NULL,
    schedule_uid BLOB NOT NULL,
    -- Place among the schedule's children.
    ordinal INTEGER NOT NULL,
    -- What else must hold for it to fire; read by the core only.
    rule TEXT NOT NULL,
    PRIMARY KEY (zone, launch_expression, slot, schedule_uid, ordinal)
) STRICT, WITHOUT ROWID;
CREATE INDEX schedule_children_schedule ON schedule_children (schedule_uid, ordinal);

-- The registry: which (zone, launch expression) have children at all. Written with the children; a row goes at 0.
CREATE TABLE launch_shards (
    zone TEXT NOT NULL,
    launch_expression TEXT NOT NULL,
    children INTEGER NOT NULL,
    PRIMARY KEY (zone, launch_expression)
) STRICT, WITHOUT ROWID;

-- Who changed what, written with the change itself.
CREATE TABLE audit_log (
    -- UUID v7, so the key sorts by time.
    id BLOB PRIMARY KEY,
    at_us INTEGER NOT NULL,
    actor TEXT NOT NULL,
    namespace TEXT NOT NULL,
    resource TEXT NOT NULL,
    action TEXT NOT NULL,
    -- JSON: field path to {"old": …, "new": …}.
    difference TEXT NOT NULL
) STRICT;
CREATE INDEX audit_log_namespace ON audit_log (namespace, id);
CREATE INDEX audit_log_resource ON audit_log (namespace, resource, id);
CREATE INDEX audit_log_at ON audit_log (at_us);
