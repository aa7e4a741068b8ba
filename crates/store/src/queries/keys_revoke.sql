-- keys_revoke: ends an API key, once.
UPDATE api_keys SET revoked_us = $2
WHERE id = $1 AND revoked_us IS NULL
