-- Which triggers were missed in the last day is asked whenever somebody asks for troubles. Those that were skipped
-- because their schedule was paused can be a thousand times as many.
CREATE INDEX skipped_triggers_missed ON skipped_triggers (recorded_us) WHERE reason = 'MISSED';
