-- tasks_insert: a window's tasks.
INSERT INTO scan_tasks ({scan_tasks})
SELECT {scan_tasks}
FROM {scan_tasks.rows $1}
