-- policies_by_ids: policies of a namespace by id.
SELECT uid, id, spec FROM policies
WHERE namespace = $1 AND id IN (SELECT value FROM json_each($2))
ORDER BY id
