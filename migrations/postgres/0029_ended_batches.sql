-- What ends well in one commit of a run shares a row.

-- The other part of the done queue: events of a run that succeeded, and ended in one commit. What did not succeed, and what ended
-- before this table was there, has rows of its own in event_history. Partitions as there.
CREATE TABLE ended_batches (
    shard_id integer NOT NULL,
    run_id uuid NOT NULL,
    -- The first and the last index, less than 512 apart. Events between them may be in other rows.
    first_idx integer NOT NULL,
    last_idx integer NOT NULL,
    -- When the last event of the run that ended in the commit did.
    finished_us bigint NOT NULL,
    -- JSON, a list an event: its index less first_idx; when it ended, was acquired and was delivered, in microseconds before
    -- finished_us; its attempt, where that is not 1 or a message follows; the message, where there is one.
    ends text NOT NULL,
    PRIMARY KEY (shard_id, run_id, first_idx, finished_us)
) PARTITION BY RANGE (finished_us);

CREATE TABLE ended_batches_default PARTITION OF ended_batches DEFAULT;

-- The whole done queue, a line an event, for people.
CREATE VIEW ended_events AS
SELECT shard_id, run_id, index AS idx, outcome, attempt, acquired_us, delivered_us, finished_us, message
FROM event_history
CROSS JOIN LATERAL generate_series(idx, idx + events - 1) AS index
UNION ALL
SELECT shard_id, run_id, first_idx + (event ->> 0)::integer, 'SUCCEEDED', coalesce((event ->> 4)::integer, 1),
    finished_us - (event ->> 2)::bigint, finished_us - (event ->> 3)::bigint, finished_us - (event ->> 1)::bigint,
    coalesce(event ->> 5, '')
FROM ended_batches
CROSS JOIN LATERAL json_array_elements(ends::json) AS event;
