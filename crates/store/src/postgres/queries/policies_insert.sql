-- policies_insert: a new policy; answers with its uid if its name was free.
INSERT INTO policies (uid, namespace, id, spec, shard, paused, labels, generation, updated_us)
VALUES ($1, $2, $3, $4, $5, $6, $7::jsonb, $8, $9)
ON CONFLICT DO NOTHING
RETURNING uid
