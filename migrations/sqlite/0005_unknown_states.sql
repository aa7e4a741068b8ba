-- For the owner after a takeover: runs whose state no version knows, which the other indexes leave out. Empty, unless a
-- row is corrupt.
CREATE INDEX runs_unknown ON runs (shard_id, run_id)
    WHERE state NOT IN ('EMITTED', 'WAITING', 'RUNNING', 'FINISHED', 'CANCELLED', 'SKIPPED');
