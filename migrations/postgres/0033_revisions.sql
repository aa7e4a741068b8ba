-- The latest revision that each resource has been brought to, where callers number their changes: so an older change, which
-- comes late or once more, changes nothing. It is written in the transaction that changes the resource.
CREATE TABLE resource_revisions (
    namespace text COLLATE "C" NOT NULL,
    -- schedule, policy, calendar, alert; schedule_pause or policy_pause for whether it is paused.
    kind text COLLATE "C" NOT NULL,
    resource_id text COLLATE "C" NOT NULL,
    -- From 1 on.
    revision bigint NOT NULL,
    -- The one that it follows; 0: none. Whoever writes has read that one, and then what the change is made to.
    former bigint NOT NULL,
    -- Whether this revision deleted the resource.
    deleted boolean NOT NULL,
    updated_us bigint NOT NULL,
    PRIMARY KEY (namespace, kind, resource_id)
);
-- For retention.
CREATE INDEX resource_revisions_age ON resource_revisions (updated_us);
