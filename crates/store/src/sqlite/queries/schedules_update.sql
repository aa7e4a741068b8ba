-- schedules_update: schedules as they are from now on.
UPDATE schedules SET
    spec = new.spec, payload = new.payload, policy_uid = new.policy_uid, policy_id = new.policy_id,
    time_zone = new.time_zone, paused = new.paused, labels = new.labels, generation = new.generation,
    shard = new.shard, updated_us = new.updated_us
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
WHERE schedules.uid = new.uid
