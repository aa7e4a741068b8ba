-- outbox_delete: notices that are told. Of two who tell the same, one finds the row.
DELETE FROM plan_outbox
WHERE (schedule_uid, generation) IN (
    SELECT schedule_uid, generation FROM unnest($1::uuid[], $2::bigint[]) AS done (schedule_uid, generation)
)
RETURNING schedule_uid, generation
