-- keys_insert: a new API key.
INSERT INTO api_keys (id, name, namespace, scopes, hash, note, created_us, expires_us, revoked_us)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, NULL)
