-- policy_holds: a run under a policy of which an event holds a token.
-- cold: asked where a policy gets another parent.
SELECT run_id FROM runs
WHERE shard_id = $1 AND policy_uid = $2 AND state IN ('WAITING', 'RUNNING')
  AND (EXISTS (SELECT 1 FROM tokens WHERE tokens.shard_id = $1 AND tokens.run_id = runs.run_id AND tokens.state <> 'WAITING')
    OR EXISTS (SELECT 1 FROM token_batches WHERE token_batches.shard_id = $1 AND token_batches.run_id = runs.run_id))
LIMIT 1
