-- policies_hold: which policies exist; none of them goes before the commit.
SELECT uid FROM policies
WHERE uid {in uuid $1}
ORDER BY uid
{postgres FOR KEY SHARE}
