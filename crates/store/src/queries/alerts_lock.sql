-- alerts_lock: the generation of an alert that is about to change, held until the commit.
SELECT uid, generation FROM alerts
WHERE uid = $1
{postgres FOR UPDATE}
