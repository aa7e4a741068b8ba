-- alerts_insert: a new alert; answers with its uid if its name was free.
INSERT INTO alerts ({alerts})
SELECT {alerts}
FROM {alerts.rows $1}
WHERE true
ON CONFLICT DO NOTHING
RETURNING uid
