-- API keys: who may call. Written by `tollgate key`, read by every process that checks keys.

CREATE TABLE api_keys (
    -- The public part of the key's text.
    id TEXT PRIMARY KEY,
    -- Who the key is for; stands in the audit log. Several keys may share it, so that one can follow the other.
    name TEXT NOT NULL,
    -- The only namespace that it reaches; NULL for all.
    namespace TEXT,
    -- Comma separated.
    scopes TEXT NOT NULL,
    -- SHA-256 of the secret part, 32 bytes. The secret itself is nowhere.
    hash BLOB NOT NULL,
    -- For people.
    note TEXT NOT NULL,
    created_us INTEGER NOT NULL,
    -- NULL while it never ends by itself.
    expires_us INTEGER,
    -- NULL while it is good.
    revoked_us INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX api_keys_name ON api_keys (name, id);
