-- keys_insert: a new API key.
INSERT INTO api_keys ({api_keys})
SELECT {api_keys}
FROM {api_keys.rows $1}
