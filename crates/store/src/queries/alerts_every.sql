-- alerts_every: alerts of all namespaces in the order of their uids.
SELECT {alerts as read} FROM alerts
WHERE uid > $1
ORDER BY uid
LIMIT $2
