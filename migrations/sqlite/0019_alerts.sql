-- Who is told of what is wrong, and what has been told.

-- Alerts.
CREATE TABLE alerts (
    uid BLOB PRIMARY KEY,
    namespace TEXT NOT NULL,
    id TEXT NOT NULL,
    -- The whole alert as JSON; the columns beside it are copies to look for.
    spec TEXT NOT NULL,
    disabled INTEGER NOT NULL,
    -- Object of strings.
    labels TEXT NOT NULL,
    -- Grows by one with every change; the etag.
    generation INTEGER NOT NULL,
    updated_us INTEGER NOT NULL,
    UNIQUE (namespace, id)
) STRICT;

-- What each alert has told, and what it is about to tell. Absent before there was anything.
CREATE TABLE alert_states (
    alert_uid BLOB PRIMARY KEY,
    -- Grows by one with each write: who has read an older one does not write.
    version INTEGER NOT NULL,
    -- The state as JSON.
    state TEXT NOT NULL
) STRICT;

-- How often any alert was changed; one row. Whoever has read the alerts at a number has them as long as it is the same.
CREATE TABLE alert_changes (
    changes INTEGER NOT NULL
) STRICT;
INSERT INTO alert_changes VALUES (0);
