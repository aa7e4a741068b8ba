-- tasks_release: what was claimed under this lease is anybody's, and has been claimed before.
UPDATE scan_tasks SET lease_id = NULL, lease_until_us = $2 WHERE lease_id = $1
