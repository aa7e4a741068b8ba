-- members_list: registered processes.
SELECT process, roles, address, heartbeat FROM members ORDER BY process
