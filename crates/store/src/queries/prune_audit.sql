-- prune_audit: audit entries that are too old.
DELETE FROM audit_log
WHERE id IN (SELECT id FROM audit_log WHERE at_us < $1 LIMIT $2)
