-- Items of schedules: what the events of each of their runs carry of their own.

-- The generation that has them, a line end, and a line an item: its key, a tab, JSON. Empty where it has none; of another
-- generation it counts for nothing. The lines are sealed where secrets are. On its own, so that a scan does not read it.
ALTER TABLE schedules ADD COLUMN items text NOT NULL DEFAULT '';
