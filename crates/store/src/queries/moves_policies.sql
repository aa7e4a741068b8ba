-- moves_policies: where each policy lives, and what it is under.
SELECT uid, parent_uid, shard FROM policies ORDER BY uid
