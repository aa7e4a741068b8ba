-- moves_item_pages: what item_pages has of runs that move.
UPDATE item_pages SET shard_id = $2
WHERE shard_id = $1 AND run_id {in uuid $3}
