-- keys_list: all API keys, by name and age.
SELECT {api_keys} FROM api_keys
ORDER BY name, created_us, id
