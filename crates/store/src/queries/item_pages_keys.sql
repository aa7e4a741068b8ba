-- item_pages_keys: which keys the pages of a run have, from the one that holds an index on.
SELECT first_idx, events, keys
FROM item_pages
WHERE shard_id = $1 AND run_id = $2 AND first_idx + events > $3
ORDER BY first_idx
LIMIT $4
