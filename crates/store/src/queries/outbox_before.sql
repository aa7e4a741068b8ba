-- outbox_before: notices that wait of earlier generations of these schedules.
-- In SQLite, CROSS keeps it a look-up by key.
SELECT earlier.schedule_uid, earlier.generation, earlier.changed_us, earlier.body
FROM {keys of plan_outbox.rows $1}
{sqlite CROSS} JOIN plan_outbox AS earlier
    ON earlier.schedule_uid = new.schedule_uid AND earlier.generation < new.generation
ORDER BY earlier.schedule_uid, earlier.generation
