-- schedules_update: schedules as they are from now on.
UPDATE schedules SET {schedules.set new}
FROM {schedules.rows $1}
WHERE schedules.uid = new.uid
