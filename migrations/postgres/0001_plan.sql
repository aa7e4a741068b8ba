-- Schedules, policies, their children, and who changed what. Written by the Schedule Master.
-- Times are microseconds since the Unix epoch, from the application: no statement reads a clock.

-- What every process of an installation shares. One row, made once.
CREATE TABLE installation (
    one integer PRIMARY KEY CHECK (one = 1),
    id uuid NOT NULL,
    -- Key of the event ids' seals, 32 bytes.
    secret bytea NOT NULL,
    -- How many queue shards there are, for ever.
    shards integer NOT NULL
);

-- Throttling policies.
CREATE TABLE policies (
    uid uuid PRIMARY KEY,
    namespace text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    -- The whole policy as JSON; the columns beside it are copies to look for.
    spec text NOT NULL,
    -- The queue shard in which it lives.
    shard integer NOT NULL,
    paused boolean NOT NULL,
    -- Object of strings.
    labels jsonb NOT NULL,
    -- Grows by one with every change; the etag.
    generation bigint NOT NULL,
    updated_us bigint NOT NULL,
    UNIQUE (namespace, id)
);
CREATE INDEX policies_labels ON policies USING gin (labels jsonb_path_ops);

-- Schedules. Triggering never writes here.
CREATE TABLE schedules (
    uid uuid PRIMARY KEY,
    namespace text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    -- The schedule as JSON, without its payload; the columns beside it are copies to look for.
    spec text NOT NULL,
    -- The payload on its own, so that a scan does not read it.
    payload text NOT NULL,
    -- A policy in use cannot go.
    policy_uid uuid REFERENCES policies (uid),
    -- The policy's id, for filters.
    policy_id text COLLATE "C",
    time_zone text NOT NULL,
    paused boolean NOT NULL,
    -- Object of strings.
    labels jsonb NOT NULL,
    -- Grows by one with every change; the etag.
    generation bigint NOT NULL,
    -- The queue shard that owns its runs.
    shard integer NOT NULL,
    created_us bigint NOT NULL,
    updated_us bigint NOT NULL,
    UNIQUE (namespace, id)
);
CREATE INDEX schedules_policy ON schedules (policy_uid, id);
CREATE INDEX schedules_labels ON schedules USING gin (labels jsonb_path_ops);

-- The launch index: one row a child. A scan reads (zone, launch expression, range of slots) in key order.
CREATE TABLE schedule_children (
    zone text COLLATE "C" NOT NULL,
    launch_expression text COLLATE "C" NOT NULL,
    -- Minute of the hour, or what the launch class counts in.
    slot integer NOT NULL,
    schedule_uid uuid NOT NULL,
    -- Place among the schedule's children.
    ordinal integer NOT NULL,
    -- What else must hold for it to fire; read by the core only.
    rule text NOT NULL,
    PRIMARY KEY (zone, launch_expression, slot, schedule_uid, ordinal)
);
CREATE INDEX schedule_children_schedule ON schedule_children (schedule_uid, ordinal);

-- The registry: which (zone, launch expression) have children at all. Written with the children; a row goes at 0.
CREATE TABLE launch_shards (
    zone text COLLATE "C" NOT NULL,
    launch_expression text COLLATE "C" NOT NULL,
    children bigint NOT NULL,
    PRIMARY KEY (zone, launch_expression)
);

-- Who changed what, written with the change itself.
CREATE TABLE audit_log (
    -- UUID v7, so the key sorts by time.
    id uuid PRIMARY KEY,
    at_us bigint NOT NULL,
    actor text NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    resource text COLLATE "C" NOT NULL,
    action text NOT NULL,
    -- JSON: field path to {"old": …, "new": …}.
    difference text NOT NULL
);
CREATE INDEX audit_log_namespace ON audit_log (namespace, id);
CREATE INDEX audit_log_resource ON audit_log (namespace, resource, id);
CREATE INDEX audit_log_at ON audit_log (at_us);
