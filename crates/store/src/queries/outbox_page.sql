-- outbox_page: notices that wait in one lane, oldest first, after a place in that order.
SELECT {plan_outbox as read} FROM plan_outbox
WHERE shard = $1 AND namespace = $2 AND (changed_us, schedule_uid) > ($3, $4)
ORDER BY changed_us, schedule_uid
LIMIT $5
