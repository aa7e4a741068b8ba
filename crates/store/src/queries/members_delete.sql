-- members_delete: a process that has ended.
DELETE FROM members WHERE process = $1
