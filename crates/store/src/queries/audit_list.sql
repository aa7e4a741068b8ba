-- audit_list: the audit log of a namespace, newest first.
SELECT {audit_log} FROM audit_log
WHERE namespace = $1 AND ($2 IS NULL OR id < $2)
    AND ($4 IS NULL OR actor = $4) AND at_us >= $5 AND at_us < $6
ORDER BY id DESC
LIMIT $3
