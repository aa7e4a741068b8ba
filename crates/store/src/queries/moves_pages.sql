-- moves_pages: how many pages of items some runs have.
SELECT run_id, count(*) FROM item_pages
WHERE shard_id = $1 AND run_id {in uuid $2}
GROUP BY run_id
