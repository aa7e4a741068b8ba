-- keys_live: the API keys that are good at $1, all or those of one name.
SELECT {api_keys} FROM api_keys
WHERE revoked_us IS NULL AND (expires_us IS NULL OR expires_us > $1) AND (CAST($2 AS text) IS NULL OR name = $2)
ORDER BY created_us, id
