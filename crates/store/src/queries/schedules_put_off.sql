-- schedules_put_off: a schedule is looked at later, or never, if it is as it was read.
UPDATE schedules SET done_us = $3
WHERE uid = $1 AND generation = $2
