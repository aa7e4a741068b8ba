-- keys_get: one API key.
SELECT {api_keys} FROM api_keys
WHERE id = $1
