-- prune_keys: API keys that ended too long ago: revoked, or expired.
DELETE FROM api_keys
WHERE id IN (SELECT id FROM api_keys WHERE revoked_us < $1 OR expires_us < $1 LIMIT $2)
