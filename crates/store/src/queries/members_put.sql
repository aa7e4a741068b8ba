-- members_put: registers a process or renews its heartbeat.
INSERT INTO members (process, roles, address, heartbeat)
VALUES ($1, $2, $3, $4)
ON CONFLICT (process) DO UPDATE SET roles = excluded.roles, address = excluded.address, heartbeat = excluded.heartbeat
