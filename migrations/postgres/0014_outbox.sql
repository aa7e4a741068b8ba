-- What queue shards must still be told, and how far pruning has come.

-- Notices of changed schedules. A row is written with the change and goes when the first shard on its way has the message; what
-- a process that died left here, any Schedule Master delivers.
CREATE TABLE plan_outbox (
    schedule_uid uuid NOT NULL,
    -- That the change made. Of one schedule, notices are delivered in this order.
    generation bigint NOT NULL,
    -- The shard that is told first.
    shard integer NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    -- When the change was made; ascends with the generation.
    changed_us bigint NOT NULL,
    -- The notice as JSON.
    body text NOT NULL,
    PRIMARY KEY (schedule_uid, generation)
);
CREATE INDEX plan_outbox_lane ON plan_outbox (shard, namespace, changed_us, schedule_uid);

-- Up to where has been pruned, so that a clock that is wrong cannot empty everything at once.
CREATE TABLE pruning (
    one integer PRIMARY KEY CHECK (one = 1),
    before_us bigint NOT NULL
);
