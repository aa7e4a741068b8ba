-- Windows and scan tasks. Written by the Event Emitter.

-- One row a window. The newest rows say how far the emitters are.
CREATE TABLE scan_windows (
    start_us INTEGER PRIMARY KEY,
    end_us INTEGER NOT NULL,
    opened_us INTEGER NOT NULL,
    -- When its last task was done; NULL while it is open.
    completed_us INTEGER,
    -- How many tasks it had; NULL while it is announced only.
    tasks INTEGER,
    -- How many runs it emitted.
    runs INTEGER NOT NULL
) STRICT;
CREATE INDEX scan_windows_open ON scan_windows (start_us) WHERE completed_us IS NULL;

-- Tasks that are not done yet; a row goes when its task is done.
CREATE TABLE scan_tasks (
    start_us INTEGER NOT NULL,
    zone TEXT NOT NULL,
    launch_expression TEXT NOT NULL,
    -- JSON: [[first, last], …].
    slots TEXT NOT NULL,
    -- Who works on it, and until when others leave it alone; NULL if nobody does.
    lease_id BLOB,
    lease_until_us INTEGER,
    -- The last child that has been emitted; all NULL at the start.
    checkpoint_slot INTEGER,
    checkpoint_uid BLOB,
    checkpoint_ordinal INTEGER,
    PRIMARY KEY (start_us, zone, launch_expression)
) STRICT;

-- Triggers that made no run, with the reason.
CREATE TABLE skipped_triggers (
    schedule_uid BLOB NOT NULL,
    launch_us INTEGER NOT NULL,
    -- MISSED, PAUSED or OVERLAP.
    reason TEXT NOT NULL,
    recorded_us INTEGER NOT NULL,
    PRIMARY KEY (schedule_uid, launch_us)
) STRICT, WITHOUT ROWID;
CREATE INDEX skipped_triggers_recorded ON skipped_triggers (recorded_us);
