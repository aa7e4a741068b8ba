-- schedules_insert: new schedules; answers with those whose name was free.
INSERT INTO schedules ({schedules})
SELECT {schedules}
FROM {schedules.rows $1}
WHERE true
ON CONFLICT DO NOTHING
RETURNING uid
