-- alerts_by_ids: alerts of a namespace by id.
SELECT {alerts as read} FROM alerts
WHERE namespace = $1 AND id {in text $2}
ORDER BY id
