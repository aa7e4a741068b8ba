-- Dates under a name, on which the schedules that name them do not fire.

CREATE TABLE calendars (
    uid BLOB PRIMARY KEY,
    namespace TEXT NOT NULL,
    id TEXT NOT NULL,
    -- The whole calendar as JSON; the columns beside it are copies to look for.
    spec TEXT NOT NULL,
    -- Object of strings.
    labels TEXT NOT NULL,
    -- Grows by one with every change; the etag.
    generation INTEGER NOT NULL,
    -- The generation that changed the dates last. Whoever writes a schedule with other dates writes nothing.
    dates_generation INTEGER NOT NULL,
    updated_us INTEGER NOT NULL,
    UNIQUE (namespace, id)
) STRICT;

-- Which schedules go by which calendars. The dates stand in the schedules, too: nobody who asks when one fires reads this.
CREATE TABLE calendar_users (
    calendar_uid BLOB NOT NULL,
    schedule_uid BLOB NOT NULL,
    -- The schedule's, when it was noted. The row counts only while the schedule is of it: a process that does not know this table
    -- makes its rows count no more by writing the schedule.
    generation INTEGER NOT NULL,
    PRIMARY KEY (calendar_uid, schedule_uid)
) STRICT;
CREATE INDEX calendar_users_schedule ON calendar_users (schedule_uid);
