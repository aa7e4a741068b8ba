-- minutes_oldest: the first minute of a shard that is not part of an hour yet, before a moment.
SELECT minute_us
FROM minute_counts
WHERE shard_id = $1 AND seconds = 60 AND minute_us < $2
ORDER BY minute_us
LIMIT 1
