-- policies_by_uids: policies, by their uids.
SELECT {policies as read} FROM policies
WHERE uid {in uuid $1}
ORDER BY uid
