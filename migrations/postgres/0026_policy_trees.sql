-- The policy above a policy: it cannot go as long as there are some below it.
ALTER TABLE policies ADD COLUMN parent_uid uuid REFERENCES policies (uid);
CREATE INDEX policies_parent ON policies (parent_uid, id) WHERE parent_uid IS NOT NULL;
-- New policies of its namespace that name no parent get this one.
ALTER TABLE policies ADD COLUMN adopts boolean NOT NULL DEFAULT FALSE;
CREATE UNIQUE INDEX policies_adopting ON policies (namespace) WHERE adopts;
