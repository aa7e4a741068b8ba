-- registry_drop: registry rows that have no children left go.
DELETE FROM launch_shards
WHERE children <= 0 AND (zone, launch_expression) IN (
    SELECT zone, launch_expression
    FROM (
    SELECT
        value ->> 'zone' AS zone,
        value ->> 'launch_expression' AS launch_expression
    FROM json_each($1)
) AS gone
)
