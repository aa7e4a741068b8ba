-- keys_get: one API key.
SELECT id, name, namespace, scopes, hash, note, created_us, expires_us, revoked_us FROM api_keys
WHERE id = $1
