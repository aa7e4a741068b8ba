-- policies_lock: the generation of a policy that is about to change, held until the commit.
SELECT uid, generation FROM policies
WHERE uid = $1
{postgres FOR UPDATE}
