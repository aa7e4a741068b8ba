-- moved_homes_drop: policies and schedules that live in a shard again.
DELETE FROM moved_homes
WHERE shard_id = $1 AND uid {in uuid $2}
