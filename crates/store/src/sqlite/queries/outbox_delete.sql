-- outbox_delete: notices that are told. Of two who tell the same, one finds the row.
DELETE FROM plan_outbox
WHERE (schedule_uid, generation) IN (
    SELECT schedule_uid, generation
    FROM (
    SELECT
        unhex(value ->> 'schedule_uid', '-') AS schedule_uid,
        value ->> 'generation' AS generation
    FROM json_each($1)
) AS done
)
RETURNING schedule_uid, generation
