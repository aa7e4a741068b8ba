-- audit_insert: who changed what.
INSERT INTO audit_log (id, at_us, actor, namespace, resource, action, difference)
SELECT id, at_us, actor, namespace, resource, action, difference
FROM (
    SELECT
        unhex(value ->> 'id', '-') AS id,
        value ->> 'at_us' AS at_us,
        value ->> 'actor' AS actor,
        value ->> 'namespace' AS namespace,
        value ->> 'resource' AS resource,
        value ->> 'action' AS action,
        value ->> 'difference' AS difference
    FROM json_each($1)
) AS new
