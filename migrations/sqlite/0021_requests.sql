-- What people asked for under an id of theirs, so that who asks again gets the same answer, and nothing is done twice.
CREATE TABLE requests (
    schedule_uid BLOB NOT NULL,
    request_id TEXT NOT NULL,
    -- JSON object: what was asked for.
    content TEXT NOT NULL,
    -- JSON: how far it has come, and with what answer.
    progress TEXT NOT NULL,
    -- How many runs it has made.
    made INTEGER NOT NULL,
    created_us INTEGER NOT NULL,
    PRIMARY KEY (schedule_uid, request_id)
) STRICT, WITHOUT ROWID;
-- For retention.
CREATE INDEX requests_age ON requests (created_us);

-- From when on a schedule that is deleted by itself may go; none for all others.
ALTER TABLE schedules ADD COLUMN done_us INTEGER;
CREATE INDEX schedules_done ON schedules (done_us, uid) WHERE done_us IS NOT NULL;
