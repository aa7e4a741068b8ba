-- registry_add: adds differences to the registry, in the order of its key, so that two writers never wait for
-- each other.
INSERT INTO launch_shards (zone, launch_expression, children)
SELECT zone, launch_expression, children
FROM unnest($1::text[], $2::text[], $3::bigint[])
    AS new (zone, launch_expression, children)
ORDER BY zone COLLATE "C", launch_expression COLLATE "C"
ON CONFLICT (zone, launch_expression) DO UPDATE SET children = launch_shards.children + excluded.children
