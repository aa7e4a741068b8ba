-- schedules_insert: new schedules; answers with those whose name was free.
INSERT INTO schedules (uid, namespace, id, spec, payload, policy_uid, policy_id, time_zone, paused, labels,
    generation, shard, created_us, updated_us)
SELECT uid, namespace, id, spec, payload, policy_uid, policy_id, time_zone, paused, labels, generation, shard,
    created_us, updated_us
FROM (
    SELECT
        unhex(value ->> 'uid', '-') AS uid,
        value ->> 'namespace' AS namespace,
        value ->> 'id' AS id,
        value ->> 'spec' AS spec,
        value ->> 'payload' AS payload,
        unhex(value ->> 'policy_uid', '-') AS policy_uid,
        value ->> 'policy_id' AS policy_id,
        value ->> 'time_zone' AS time_zone,
        value ->> 'paused' AS paused,
        value ->> 'labels' AS labels,
        value ->> 'generation' AS generation,
        value ->> 'shard' AS shard,
        value ->> 'created_us' AS created_us,
        value ->> 'updated_us' AS updated_us
    FROM json_each($1)
) AS new
WHERE true
ON CONFLICT DO NOTHING
RETURNING uid
