-- outbox_insert: what queue shards must be told of changes in this transaction.
INSERT INTO plan_outbox ({plan_outbox})
SELECT {plan_outbox}
FROM {plan_outbox.rows $1}
