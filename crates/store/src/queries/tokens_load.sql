-- tokens_load: the tokens of a shard's unfinished runs.
SELECT {tokens}
FROM tokens
WHERE shard_id = $1
ORDER BY run_id, idx
