-- policies_below: the policies right below one.
SELECT {policies as read} FROM policies
WHERE parent_uid = $1
ORDER BY id
