-- revisions_put: brings resources from the revisions that were read to later ones; answers with those that are brought. In the
-- order of the key, so that two writers never wait for each other; SQLite has one.
INSERT INTO resource_revisions ({resource_revisions})
SELECT {resource_revisions}
FROM {resource_revisions.rows $1}
WHERE true
{postgres ORDER BY namespace COLLATE "C", kind COLLATE "C", resource_id COLLATE "C"}
ON CONFLICT (namespace, kind, resource_id) DO UPDATE SET
    revision = excluded.revision, former = excluded.former, deleted = excluded.deleted, updated_us = excluded.updated_us
WHERE resource_revisions.revision = excluded.former AND resource_revisions.revision < excluded.revision
RETURNING namespace, kind, resource_id
