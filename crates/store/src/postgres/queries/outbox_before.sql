-- outbox_before: notices that wait of earlier generations of these schedules.
SELECT earlier.schedule_uid, earlier.generation, earlier.changed_us, earlier.body
FROM unnest($1::uuid[], $2::bigint[]) AS told (schedule_uid, generation)
JOIN plan_outbox AS earlier
    ON earlier.schedule_uid = told.schedule_uid AND earlier.generation < told.generation
ORDER BY earlier.schedule_uid, earlier.generation
