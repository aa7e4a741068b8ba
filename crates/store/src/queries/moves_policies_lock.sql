-- moves_policies_lock: policies that are to move. Until the commit they stay as they are, and nobody puts a schedule under them.
SELECT {policies with another home} FROM policies
WHERE uid {in uuid $1}
ORDER BY uid
{postgres FOR UPDATE}
