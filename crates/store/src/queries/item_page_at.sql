-- item_page_at: the page of a run that holds an index.
SELECT first_idx, events, keys, body
FROM item_pages
WHERE shard_id = $1 AND run_id = $2 AND first_idx <= $3
ORDER BY first_idx DESC
LIMIT 1
