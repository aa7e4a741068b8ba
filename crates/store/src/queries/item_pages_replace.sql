-- item_pages_replace: one page's text, if it is as it was read.
UPDATE item_pages SET body = $4
WHERE shard_id = $1 AND run_id = $2 AND first_idx = $3 AND body = $5
