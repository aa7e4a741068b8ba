-- tokens_list: token rows of a run.
SELECT {tokens}
FROM tokens
WHERE shard_id = $1 AND run_id = $2 AND idx >= $3
ORDER BY idx
LIMIT $4
