-- Windows and scan tasks. Written by the Event Emitter.

-- One row a window. The newest rows say how far the emitters are.
CREATE TABLE scan_windows (
    start_us bigint PRIMARY KEY,
    end_us bigint NOT NULL,
    opened_us bigint NOT NULL,
    -- When its last task was done; NULL while it is open.
    completed_us bigint,
    -- How many tasks it had; NULL while it is announced only.
    tasks integer,
    -- How many runs it emitted.
    runs bigint NOT NULL
);
CREATE INDEX scan_windows_open ON scan_windows (start_us) WHERE completed_us IS NULL;

-- Tasks that are not done yet; a row goes when its task is done.
CREATE TABLE scan_tasks (
    start_us bigint NOT NULL,
    zone text COLLATE "C" NOT NULL,
    launch_expression text COLLATE "C" NOT NULL,
    -- JSON: [[first, last], …].
    slots text NOT NULL,
    -- Who works on it, and until when others leave it alone; NULL if nobody does.
    lease_id uuid,
    lease_until_us bigint,
    -- The last child that has been emitted; all NULL at the start.
    checkpoint_slot integer,
    checkpoint_uid uuid,
    checkpoint_ordinal integer,
    PRIMARY KEY (start_us, zone, launch_expression)
);

-- Triggers that made no run, with the reason.
CREATE TABLE skipped_triggers (
    schedule_uid uuid NOT NULL,
    launch_us bigint NOT NULL,
    -- MISSED, PAUSED or OVERLAP.
    reason text NOT NULL,
    recorded_us bigint NOT NULL,
    PRIMARY KEY (schedule_uid, launch_us)
);
CREATE INDEX skipped_triggers_recorded ON skipped_triggers (recorded_us);
