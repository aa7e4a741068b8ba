-- moved_homes_put: where policies and schedules have gone.
INSERT INTO moved_homes ({moved_homes})
SELECT {moved_homes}
FROM {moved_homes.rows $1}
WHERE true
ON CONFLICT (shard_id, uid) DO UPDATE SET {moved_homes.set excluded}
