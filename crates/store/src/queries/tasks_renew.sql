-- tasks_renew: what is claimed under this lease stays so for longer.
UPDATE scan_tasks SET lease_until_us = $2 WHERE lease_id = $1
