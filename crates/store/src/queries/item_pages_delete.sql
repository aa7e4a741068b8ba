-- item_pages_delete: some pages of a run.
DELETE FROM item_pages
WHERE shard_id = $1 AND run_id = $2 AND first_idx IN (
    SELECT first_idx FROM item_pages
    WHERE shard_id = $1 AND run_id = $2
    ORDER BY first_idx
    LIMIT $3
)
