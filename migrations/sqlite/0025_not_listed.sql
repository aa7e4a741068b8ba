-- Which triggers made no run as their items could not be fetched is asked whenever somebody asks for troubles, as which were
-- missed is.
CREATE INDEX skipped_triggers_not_listed ON skipped_triggers (recorded_us) WHERE reason = 'NOT_LISTED';
