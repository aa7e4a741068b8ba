-- schedules_rewrite: schedules with other dates.
UPDATE schedules SET {schedules with other dates.set new}
FROM {schedules with other dates.rows $1}
WHERE schedules.uid = new.uid
