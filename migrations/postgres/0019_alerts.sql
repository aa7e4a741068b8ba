-- Who is told of what is wrong, and what has been told.

-- Alerts.
CREATE TABLE alerts (
    uid uuid PRIMARY KEY,
    namespace text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    -- The whole alert as JSON; the columns beside it are copies to look for.
    spec text NOT NULL,
    disabled boolean NOT NULL,
    -- Object of strings.
    labels jsonb NOT NULL,
    -- Grows by one with every change; the etag.
    generation bigint NOT NULL,
    updated_us bigint NOT NULL,
    UNIQUE (namespace, id)
);

-- What each alert has told, and what it is about to tell. Absent before there was anything.
CREATE TABLE alert_states (
    alert_uid uuid PRIMARY KEY,
    -- Grows by one with each write: who has read an older one does not write.
    version bigint NOT NULL,
    -- The state as JSON.
    state text NOT NULL
);

-- How often any alert was changed; one row. Whoever has read the alerts at a number has them as long as it is the same.
CREATE TABLE alert_changes (
    changes bigint NOT NULL
);
INSERT INTO alert_changes VALUES (0);
