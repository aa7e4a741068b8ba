-- What went wrong, over all runs, and which of it somebody has closed.

-- Runs of which events ended badly, for those who look for troubles. Runs that end well are not in it.
CREATE INDEX runs_not_well ON runs (shard_id, finished_us)
    WHERE finished_us IS NOT NULL AND failed + dead + expired + lost > 0;
-- cold: for lists over all runs of a namespace, which look in all shards.
CREATE INDEX runs_failed ON runs (namespace, finished_us, run_id)
    WHERE finished_us IS NOT NULL AND failed + dead + expired + lost > 0;

-- Events of a run that did not succeed. One that did costs nothing here.
CREATE INDEX event_history_failed ON event_history (shard_id, run_id, idx) WHERE outcome <> 'SUCCEEDED';

-- Runs whose failures somebody has closed: nothing more is to be done about them. A run that ends again later shows again.
CREATE TABLE closed_failures (
    shard_id integer NOT NULL,
    run_id uuid NOT NULL,
    -- When the run that was closed had ended.
    until_us bigint NOT NULL,
    PRIMARY KEY (shard_id, run_id)
);
-- For retention.
CREATE INDEX closed_failures_age ON closed_failures (shard_id, until_us);
