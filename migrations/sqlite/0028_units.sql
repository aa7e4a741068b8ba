-- The most tokens that one of the items of a run, or of a submission, says that its event takes; 0 where none says so.
ALTER TABLE runs ADD COLUMN units_max INTEGER NOT NULL DEFAULT 0;
ALTER TABLE submissions ADD COLUMN units_max INTEGER NOT NULL DEFAULT 0;
