-- Runs that follow one another.

-- The id of the schedule, of the same namespace, of which a run follows when a run of this one has ended.
ALTER TABLE schedules ADD COLUMN next_id TEXT;
CREATE INDEX schedules_next ON schedules (namespace, next_id, id) WHERE next_id IS NOT NULL;

-- JSON: the run of which the end made this one.
ALTER TABLE runs ADD COLUMN predecessor TEXT;
