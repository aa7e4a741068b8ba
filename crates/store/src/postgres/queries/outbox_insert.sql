-- outbox_insert: what queue shards must be told of changes in this transaction.
INSERT INTO plan_outbox (schedule_uid, generation, shard, namespace, changed_us, body)
SELECT schedule_uid, generation, shard, namespace, changed_us, body
FROM unnest($1::uuid[], $2::bigint[], $3::int[], $4::text[], $5::bigint[], $6::text[])
    AS new (schedule_uid, generation, shard, namespace, changed_us, body)
