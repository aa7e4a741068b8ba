-- children_insert: new children.
INSERT INTO schedule_children ({schedule_children})
SELECT {schedule_children}
FROM {schedule_children.rows $1}
