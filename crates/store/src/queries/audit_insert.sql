-- audit_insert: who changed what.
INSERT INTO audit_log ({audit_log})
SELECT {audit_log}
FROM {audit_log.rows $1}
