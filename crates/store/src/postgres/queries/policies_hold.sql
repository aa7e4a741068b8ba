-- policies_hold: which policies exist; none of them goes before the commit.
SELECT uid FROM policies
WHERE uid = ANY($1::uuid[])
ORDER BY uid
FOR KEY SHARE
