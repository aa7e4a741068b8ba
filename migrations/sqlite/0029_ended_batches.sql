-- What ends well in one commit of a run shares a row.

-- The other part of the done queue: events of a run that succeeded, and ended in one commit. What did not succeed, and what ended
-- before this table was there, has rows of its own in event_history.
CREATE TABLE ended_batches (
    shard_id INTEGER NOT NULL,
    run_id BLOB NOT NULL,
    -- The first and the last index, less than 512 apart. Events between them may be in other rows.
    first_idx INTEGER NOT NULL,
    last_idx INTEGER NOT NULL,
    -- When the last event of the run that ended in the commit did.
    finished_us INTEGER NOT NULL,
    -- JSON, a list an event: its index less first_idx; when it ended, was acquired and was delivered, in microseconds before
    -- finished_us; its attempt, where that is not 1 or a message follows; the message, where there is one.
    ends TEXT NOT NULL,
    PRIMARY KEY (shard_id, run_id, first_idx, finished_us)
) STRICT, WITHOUT ROWID;

-- The whole done queue, a line an event, for people.
CREATE VIEW ended_events AS
SELECT shard_id, run_id, idx + one.key AS idx, outcome, attempt, acquired_us, delivered_us, finished_us, message
FROM event_history
CROSS JOIN json_each('[' || rtrim(replace(hex(zeroblob(events)), '00', '0,'), ',') || ']') AS one
UNION ALL
SELECT shard_id, run_id, first_idx + (event.value ->> 0), 'SUCCEEDED', coalesce(event.value ->> 4, 1),
    finished_us - (event.value ->> 2), finished_us - (event.value ->> 3), finished_us - (event.value ->> 1),
    coalesce(event.value ->> 5, '')
FROM ended_batches
CROSS JOIN json_each(ends) AS event;
