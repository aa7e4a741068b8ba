-- What became of events by the minute, for charts. Cold: written by owners three times a minute, not by commits, and
-- not distributed.

-- What one owner has counted of one policy, or of the whole of a namespace in one queue shard, within one minute. An
-- owner writes its own rows only, again and again with all that it has counted; readers add them up.
CREATE TABLE minute_counts (
    -- All zeros: the whole of the namespace, with what has no policy.
    policy_uid uuid NOT NULL,
    shard_id integer NOT NULL,
    -- When it begins.
    minute_us bigint NOT NULL,
    -- How long it is: 60, or 3600 where minutes have been put together.
    seconds integer NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    -- Of the lease under which it was counted; 0 where rows have been put together.
    epoch bigint NOT NULL,
    -- Up to when what fell due is counted.
    until_us bigint NOT NULL,
    due bigint NOT NULL,
    started bigint NOT NULL,
    retried bigint NOT NULL,
    succeeded bigint NOT NULL,
    failed bigint NOT NULL,
    dead bigint NOT NULL,
    expired bigint NOT NULL,
    cancelled bigint NOT NULL,
    lost bigint NOT NULL,
    -- As it was when it was looked last; of hours, the most of their minutes.
    waiting bigint NOT NULL,
    held bigint NOT NULL,
    PRIMARY KEY (policy_uid, shard_id, minute_us, seconds, namespace, epoch)
) WITH (fillfactor = 80);
-- For putting minutes together, and for retention.
CREATE INDEX minute_counts_age ON minute_counts (shard_id, seconds, minute_us);
