-- registry_add: adds differences to the registry, in the order of its key, so that two writers never wait for
-- each other.
INSERT INTO launch_shards (zone, launch_expression, children)
SELECT zone, launch_expression, children
FROM (
    SELECT
        value ->> 'zone' AS zone,
        value ->> 'launch_expression' AS launch_expression,
        value ->> 'children' AS children
    FROM json_each($1)
) AS new
WHERE true
ORDER BY zone, launch_expression
ON CONFLICT (zone, launch_expression) DO UPDATE SET children = launch_shards.children + excluded.children
