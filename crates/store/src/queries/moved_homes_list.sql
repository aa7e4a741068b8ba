-- moved_homes_list: which policies and schedules have gone from a shard, and where.
SELECT uid, to_shard FROM moved_homes
WHERE shard_id = $1
