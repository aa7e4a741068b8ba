-- prune_revisions: revisions that no command can be older than any more.
DELETE FROM resource_revisions
WHERE (namespace, kind, resource_id) IN (
    SELECT namespace, kind, resource_id FROM resource_revisions WHERE updated_us < $1 LIMIT $2
)
