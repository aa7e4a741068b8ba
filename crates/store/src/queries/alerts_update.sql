-- alerts_update: an alert as it is from now on.
UPDATE alerts SET {alerts.set new}
FROM {alerts.rows $1}
WHERE alerts.uid = new.uid
