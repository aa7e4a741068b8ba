-- alerts_delete: an alert goes.
DELETE FROM alerts WHERE uid = $1
