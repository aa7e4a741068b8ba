-- batches_delete: batches of which nothing is left. Each is found by its whole key, whatever the table held when this
-- was planned.
DELETE FROM token_batches
WHERE shard_id = $1 AND (run_id, first_idx) IN (
    SELECT run_id, idx FROM (
    SELECT
        unhex(value ->> 'run_id', '-') AS run_id,
        value ->> 'idx' AS idx
    FROM json_each($2)
) AS gone
)
