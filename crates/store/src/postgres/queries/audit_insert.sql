-- audit_insert: who changed what.
INSERT INTO audit_log (id, at_us, actor, namespace, resource, action, difference)
SELECT id, at_us, actor, namespace, resource, action, difference
FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[])
    AS new (id, at_us, actor, namespace, resource, action, difference)
