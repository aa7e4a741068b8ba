-- alert_states_delete: nothing is remembered of an alert any more.
DELETE FROM alert_states WHERE alert_uid = $1
