-- policies_lock: the generation of a policy that is about to change, and where it lives, held until the commit.
SELECT uid, generation, shard FROM policies
WHERE uid = $1
{postgres FOR UPDATE}
