-- audit_list_resource: the audit log of one resource, newest first.
SELECT {audit_log} FROM audit_log
WHERE namespace = $1 AND resource = $4 AND ($2 IS NULL OR id < $2)
ORDER BY id DESC
LIMIT $3
