-- installation_insert: makes the installation's identity, once.
INSERT INTO installation (one, id, secret, shards)
VALUES (1, $1, $2, $3)
ON CONFLICT (one) DO NOTHING
