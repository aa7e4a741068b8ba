-- The latest revision that each resource has been brought to, where callers number their changes: so an older change, which
-- comes late or once more, changes nothing. It is written in the transaction that changes the resource.
CREATE TABLE resource_revisions (
    namespace TEXT NOT NULL,
    -- schedule, policy, calendar, alert; schedule_pause or policy_pause for whether it is paused.
    kind TEXT NOT NULL,
    resource_id TEXT NOT NULL,
    -- From 1 on.
    revision INTEGER NOT NULL,
    -- The one that it follows; 0: none. Whoever writes has read that one, and then what the change is made to.
    former INTEGER NOT NULL,
    -- Whether this revision deleted the resource.
    deleted INTEGER NOT NULL,
    updated_us INTEGER NOT NULL,
    PRIMARY KEY (namespace, kind, resource_id)
) STRICT, WITHOUT ROWID;
-- For retention.
CREATE INDEX resource_revisions_age ON resource_revisions (updated_us);
