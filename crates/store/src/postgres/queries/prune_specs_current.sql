-- prune_specs_current: schedules of those whose specs are old: their generations, and whether they changed a while ago only.
SELECT uid, generation, updated_us >= $2 AS recent FROM schedules
WHERE uid = ANY($1::uuid[])
