-- policies_by_ids: policies of a namespace by id.
SELECT uid, id, spec FROM policies
WHERE namespace = $1 AND id = ANY($2::text[])
ORDER BY id
