-- revisions_get: the latest revisions of resources of one kind.
SELECT {resource_revisions} FROM resource_revisions
WHERE namespace = $1 AND kind = $2 AND resource_id {in text $3}
