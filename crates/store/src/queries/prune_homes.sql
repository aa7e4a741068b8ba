-- prune_homes: policies and schedules that have gone from a shard so long ago that nothing of them is left there.
DELETE FROM moved_homes
WHERE shard_id = $1 AND uid IN (
    SELECT uid FROM moved_homes
    WHERE shard_id = $1 AND moved_us < $2
    LIMIT $3
)
