-- alert_states_update: what is remembered of an alert from now on, if nobody has written since it was read.
UPDATE alert_states SET version = version + 1, state = $2
WHERE alert_uid = $1 AND version = $3
