-- registry_drop: registry rows that have no children left go.
DELETE FROM launch_shards
WHERE children <= 0 AND (zone, launch_expression) IN (
    SELECT zone, launch_expression
    FROM unnest($1::text[], $2::text[])
    AS gone (zone, launch_expression)
)
