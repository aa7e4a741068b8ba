-- alert_states_insert: what is remembered of an alert of which nothing was.
INSERT INTO alert_states (alert_uid, version, state)
SELECT uid, 1, $2 FROM alerts
WHERE uid = $1
ON CONFLICT DO NOTHING
