-- prune_revisions: revisions that are not remembered any longer.
DELETE FROM resource_revisions
WHERE (namespace, kind, resource_id) IN (
    SELECT namespace, kind, resource_id FROM resource_revisions WHERE updated_us < $1 LIMIT $2
)
