-- schedules_labelled: of some schedules of a namespace those that have all these labels.
SELECT id FROM schedules
WHERE namespace = $1 AND id {in text $2} AND labels @> $3::jsonb
