-- outbox_insert: what queue shards must be told of changes in this transaction.
INSERT INTO plan_outbox (schedule_uid, generation, shard, namespace, changed_us, body)
SELECT schedule_uid, generation, shard, namespace, changed_us, body
FROM (
    SELECT
        unhex(value ->> 'schedule_uid', '-') AS schedule_uid,
        value ->> 'generation' AS generation,
        value ->> 'shard' AS shard,
        value ->> 'namespace' AS namespace,
        value ->> 'changed_us' AS changed_us,
        value ->> 'body' AS body
    FROM json_each($1)
) AS new
