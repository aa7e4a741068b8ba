-- policies_update: a policy as it is from now on. Its shard never changes.
UPDATE policies SET
    spec = $2, paused = $3, labels = $4::jsonb, generation = $5, updated_us = $6
WHERE uid = $1
