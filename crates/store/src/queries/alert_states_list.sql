-- alert_states_list: what is remembered of alerts.
SELECT alert_uid, version, state FROM alert_states
WHERE alert_uid {in uuid $1}
