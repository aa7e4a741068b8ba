-- What became of events by the minute, for charts. Cold: written by owners three times a minute, not by commits, and
-- not distributed.

-- What one owner has counted of one policy, or of the whole of a namespace in one queue shard, within one minute. An
-- owner writes its own rows only, again and again with all that it has counted; readers add them up.
CREATE TABLE minute_counts (
    -- All zeros: the whole of the namespace, with what has no policy.
    policy_uid BLOB NOT NULL,
    shard_id INTEGER NOT NULL,
    -- When it begins.
    minute_us INTEGER NOT NULL,
    -- How long it is: 60, or 3600 where minutes have been put together.
    seconds INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    -- Of the lease under which it was counted; 0 where rows have been put together.
    epoch INTEGER NOT NULL,
    -- Up to when what fell due is counted.
    until_us INTEGER NOT NULL,
    due INTEGER NOT NULL,
    started INTEGER NOT NULL,
    retried INTEGER NOT NULL,
    succeeded INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    dead INTEGER NOT NULL,
    expired INTEGER NOT NULL,
    cancelled INTEGER NOT NULL,
    lost INTEGER NOT NULL,
    -- As it was when it was looked last; of hours, the most of their minutes.
    waiting INTEGER NOT NULL,
    held INTEGER NOT NULL,
    PRIMARY KEY (policy_uid, shard_id, minute_us, seconds, namespace, epoch)
) STRICT, WITHOUT ROWID;
-- For putting minutes together, and for retention.
CREATE INDEX minute_counts_age ON minute_counts (shard_id, seconds, minute_us);
