-- moves_policies_lock: policies that are to move. Nothing of them is changed, and no schedule is put under them, before the commit.
SELECT {policies with another home} FROM policies
WHERE uid {in uuid $1}
ORDER BY uid
{postgres FOR UPDATE}
