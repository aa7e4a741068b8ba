-- keys_list: all API keys, by name and age.
SELECT id, name, namespace, scopes, hash, note, created_us, expires_us, revoked_us FROM api_keys
ORDER BY name, created_us, id
