-- policies_by_ids: policies of a namespace by id.
SELECT {policies as read} FROM policies
WHERE namespace = $1 AND id {in text $2}
ORDER BY id
