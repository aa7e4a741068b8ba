-- outbox_delete: notices that have been delivered. Of two who deliver the same, one finds the row.
DELETE FROM plan_outbox
WHERE (schedule_uid, generation) IN (
    SELECT {keys of plan_outbox} FROM {keys of plan_outbox.rows $1}
)
RETURNING {keys of plan_outbox}
