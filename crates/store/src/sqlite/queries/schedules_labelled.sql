-- schedules_labelled: of some schedules of a namespace those that have all these labels.
SELECT id FROM schedules
WHERE namespace = $1 AND id {in text $2}
    AND NOT EXISTS (
        SELECT 1 FROM json_each($3) AS wanted
        WHERE NOT EXISTS (
            SELECT 1 FROM json_each(labels) AS given
            WHERE given.key = wanted.key AND given.value = wanted.value
        )
    )
