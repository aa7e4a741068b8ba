-- moves_schedule_rows: schedules with another home.
UPDATE schedules SET {schedules with another home.set new}
FROM {schedules with another home.rows $1}
WHERE schedules.uid = new.uid
