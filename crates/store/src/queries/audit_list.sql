-- audit_list: the audit log of a namespace, newest first.
SELECT {audit_log} FROM audit_log
WHERE namespace = $1 AND ($2 IS NULL OR id < $2)
ORDER BY id DESC
LIMIT $3
