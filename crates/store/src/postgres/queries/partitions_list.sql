-- partitions_list: the daily partitions of the done queue, by name.
SELECT child.relname::text FROM pg_inherits
JOIN pg_class AS child ON child.oid = pg_inherits.inhrelid
WHERE pg_inherits.inhparent = 'event_history'::regclass AND child.relname <> 'event_history_default'
ORDER BY child.relname
