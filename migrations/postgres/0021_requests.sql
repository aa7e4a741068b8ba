-- What people asked for under an id of theirs, so that who asks again gets the same answer, and nothing is done twice.
CREATE TABLE requests (
    schedule_uid uuid NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    -- JSON object: what was asked for.
    content text NOT NULL,
    -- JSON: how far it has come, and with what answer.
    progress text NOT NULL,
    -- How many runs it has made.
    made bigint NOT NULL,
    created_us bigint NOT NULL,
    PRIMARY KEY (schedule_uid, request_id)
);
-- For retention.
CREATE INDEX requests_age ON requests (created_us);

-- From when on a schedule that is deleted by itself may go; none for all others.
ALTER TABLE schedules ADD COLUMN done_us bigint;
CREATE INDEX schedules_done ON schedules (done_us, uid) WHERE done_us IS NOT NULL;
