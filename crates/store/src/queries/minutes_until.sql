-- minutes_until: up to when what fell due in a shard is counted in its latest minute after a moment.
SELECT until_us
FROM minute_counts
WHERE policy_uid = $1 AND shard_id = $2 AND minute_us >= $3
ORDER BY minute_us DESC, until_us DESC
LIMIT 1
