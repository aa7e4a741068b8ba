-- item_pages_insert: a page of a run that is to be made.
INSERT INTO item_pages (shard_id, run_id, first_idx, events, keys, body)
VALUES ($1, $2, $3, $4, $5, $6)
