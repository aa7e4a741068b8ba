-- tokens_delete: tokens that are free. Each is found by its whole key, whatever the table held when this was
-- planned.
DELETE FROM tokens
WHERE shard_id = $1 AND (run_id, idx) IN (
    SELECT run_id, idx FROM {event_keys.rows $2}
)
