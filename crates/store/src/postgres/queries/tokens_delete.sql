-- tokens_delete: tokens that are free. Each is found by its whole key, whatever the table held when this was
-- planned.
DELETE FROM tokens
USING unnest($2::uuid[], $3::int[])
    AS gone (run_id, idx)
WHERE tokens.shard_id = $1 AND tokens.run_id = gone.run_id AND tokens.idx = gone.idx
