-- minutes_take: a shard's minutes of one hour go, and are told.
DELETE FROM minute_counts
WHERE shard_id = $1 AND seconds = 60 AND minute_us >= $2 AND minute_us < $3
RETURNING {minute_counts}
