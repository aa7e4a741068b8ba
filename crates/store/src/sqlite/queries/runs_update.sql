-- runs_update: runs as they are now. Schedule, namespace, launch time, kind and emission never change.
UPDATE runs SET
    generation = new.generation, policy_uid = new.policy_uid, events = new.events, priority = new.priority,
    state = new.state, reason = new.reason, next_index = new.next_index, succeeded = new.succeeded,
    failed = new.failed, dead = new.dead, expired = new.expired, cancelled = new.cancelled, lost = new.lost,
    cursor_in = new.cursor_in, cursor_out = new.cursor_out, started_us = new.started_us,
    finished_us = new.finished_us
FROM (
    SELECT
        unhex(value ->> 'run_id', '-') AS run_id,
        value ->> 'generation' AS generation,
        unhex(value ->> 'policy_uid', '-') AS policy_uid,
        value ->> 'events' AS events,
        value ->> 'priority' AS priority,
        value ->> 'state' AS state,
        value ->> 'reason' AS reason,
        value ->> 'next_index' AS next_index,
        value ->> 'succeeded' AS succeeded,
        value ->> 'failed' AS failed,
        value ->> 'dead' AS dead,
        value ->> 'expired' AS expired,
        value ->> 'cancelled' AS cancelled,
        value ->> 'lost' AS lost,
        value ->> 'cursor_in' AS cursor_in,
        value ->> 'cursor_out' AS cursor_out,
        value ->> 'started_us' AS started_us,
        value ->> 'finished_us' AS finished_us
    FROM json_each($2)
) AS new
WHERE runs.shard_id = $1 AND runs.run_id = new.run_id
