-- schedules_moved: which of some schedules have moved, of which generation they are, and when they were changed.
SELECT uid, generation, updated_us FROM schedules
WHERE uid {in uuid $1} AND spec LIKE '%"former_homes":[%'
