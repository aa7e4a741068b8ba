-- item_pages_stored: pages of a run as they stand, in their order.
SELECT first_idx, body
FROM item_pages
WHERE shard_id = $1 AND run_id = $2 AND first_idx > $3
ORDER BY first_idx
LIMIT $4
