-- runs_insert: new runs; one that is there stays as it is.
INSERT INTO runs (
    shard_id, run_id, schedule_uid, generation, namespace, schedule_id, policy_uid, launch_us, events, priority, kind,
    state, reason, next_index, succeeded, failed, dead, expired, cancelled, lost, cursor_in, cursor_out, emitted_us,
    started_us, finished_us
)
SELECT
    shard_id, run_id, schedule_uid, generation, namespace, schedule_id, policy_uid, launch_us, events, priority, kind,
    state, reason, next_index, succeeded, failed, dead, expired, cancelled, lost, cursor_in, cursor_out, emitted_us,
    started_us, finished_us
FROM (
    SELECT
        value ->> 'shard_id' AS shard_id,
        unhex(value ->> 'run_id', '-') AS run_id,
        unhex(value ->> 'schedule_uid', '-') AS schedule_uid,
        value ->> 'generation' AS generation,
        value ->> 'namespace' AS namespace,
        value ->> 'schedule_id' AS schedule_id,
        unhex(value ->> 'policy_uid', '-') AS policy_uid,
        value ->> 'launch_us' AS launch_us,
        value ->> 'events' AS events,
        value ->> 'priority' AS priority,
        value ->> 'kind' AS kind,
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
        value ->> 'emitted_us' AS emitted_us,
        value ->> 'started_us' AS started_us,
        value ->> 'finished_us' AS finished_us
    FROM json_each($1)
) AS new
WHERE true
ON CONFLICT (shard_id, run_id) DO NOTHING
