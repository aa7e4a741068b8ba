-- partitions_list: the daily partitions of the done queue's two tables, by name.
SELECT child.relname::text FROM pg_inherits
JOIN pg_class AS child ON child.oid = pg_inherits.inhrelid
WHERE pg_inherits.inhparent IN ('event_history'::regclass, 'ended_batches'::regclass)
    AND child.relname NOT IN ('event_history_default', 'ended_batches_default')
ORDER BY child.relname
