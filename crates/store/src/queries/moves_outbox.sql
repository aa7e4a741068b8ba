-- moves_outbox: of which schedules and policies a shard is still to be told.
SELECT DISTINCT schedule_uid FROM plan_outbox
WHERE schedule_uid {in uuid $1}
