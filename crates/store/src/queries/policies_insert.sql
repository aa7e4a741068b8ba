-- policies_insert: a new policy; answers with its uid if its name was free.
INSERT INTO policies ({policies})
SELECT {policies}
FROM {policies.rows $1}
WHERE true
ON CONFLICT DO NOTHING
RETURNING uid
