-- outbox_before: notices that wait of earlier generations of these schedules.
-- CROSS JOIN keeps it a look-up by key.
SELECT earlier.schedule_uid, earlier.generation, earlier.changed_us, earlier.body
FROM (
    SELECT
        unhex(value ->> 'schedule_uid', '-') AS schedule_uid,
        value ->> 'generation' AS generation
    FROM json_each($1)
) AS told
CROSS JOIN plan_outbox AS earlier
    ON earlier.schedule_uid = told.schedule_uid AND earlier.generation < told.generation
ORDER BY earlier.schedule_uid, earlier.generation
