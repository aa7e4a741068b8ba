-- audit_since: the audit log of all namespaces from a moment on, oldest first.
SELECT id, at_us, actor, namespace, resource, action, difference FROM audit_log
WHERE at_us >= $1 AND ($2::uuid IS NULL OR id > $2)
ORDER BY id
LIMIT $3
