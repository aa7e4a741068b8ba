-- registry_add: adds differences to the registry, in the order of its key, so that two writers never wait for
-- each other; SQLite has one.
INSERT INTO launch_shards ({launch_shards})
SELECT {launch_shards}
FROM {launch_shards.rows $1}
WHERE true
{postgres ORDER BY zone COLLATE "C", launch_expression COLLATE "C"}
ON CONFLICT (zone, launch_expression) DO UPDATE SET children = launch_shards.children + excluded.children
