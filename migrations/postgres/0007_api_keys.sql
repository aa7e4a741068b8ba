-- API keys: who may call. Written by `tollgate key`, read by every process that checks keys.

CREATE TABLE api_keys (
    -- The public part of the key's text.
    id text COLLATE "C" PRIMARY KEY,
    -- Who the key is for; stands in the audit log. Several keys may share it, so that one can follow the other.
    name text COLLATE "C" NOT NULL,
    -- The only namespace that it reaches; NULL for all.
    namespace text COLLATE "C",
    -- Comma separated.
    scopes text NOT NULL,
    -- SHA-256 of the secret part, 32 bytes. The secret itself is nowhere.
    hash bytea NOT NULL,
    -- For people.
    note text NOT NULL,
    created_us bigint NOT NULL,
    -- NULL while it never ends by itself.
    expires_us bigint,
    -- NULL while it is good.
    revoked_us bigint
);
CREATE INDEX api_keys_name ON api_keys (name, id);
