-- Who asked for a run that no timing made; NULL for all others, and for those of before.
ALTER TABLE runs ADD COLUMN IF NOT EXISTS asked_by text;
