-- Dates under a name, on which the schedules that name them do not fire.

CREATE TABLE calendars (
    uid uuid PRIMARY KEY,
    namespace text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    -- The whole calendar as JSON; the columns beside it are copies to look for.
    spec text NOT NULL,
    -- Object of strings.
    labels jsonb NOT NULL,
    -- Grows by one with every change; the etag.
    generation bigint NOT NULL,
    -- The generation that changed the dates last. Whoever writes a schedule with other dates writes nothing.
    dates_generation bigint NOT NULL,
    updated_us bigint NOT NULL,
    UNIQUE (namespace, id)
);

-- Which schedules go by which calendars. The dates stand in the schedules, too: nobody who asks when one fires reads this.
CREATE TABLE calendar_users (
    calendar_uid uuid NOT NULL,
    schedule_uid uuid NOT NULL,
    -- The schedule's, when it was noted. The row counts only while the schedule is of it: a process that does not know this table
    -- makes its rows count no more by writing the schedule.
    generation bigint NOT NULL,
    PRIMARY KEY (calendar_uid, schedule_uid)
);
CREATE INDEX calendar_users_schedule ON calendar_users (schedule_uid);
