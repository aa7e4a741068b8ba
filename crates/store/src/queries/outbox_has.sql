-- outbox_has: whether a notice of a schedule waits.
SELECT generation FROM plan_outbox
WHERE schedule_uid = $1
LIMIT 1
