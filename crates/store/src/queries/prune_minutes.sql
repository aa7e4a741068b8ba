-- prune_minutes: a shard's minutes and hours that are too old.
DELETE FROM minute_counts
WHERE shard_id = $1 AND seconds IN (60, 3600) AND minute_us < $2
