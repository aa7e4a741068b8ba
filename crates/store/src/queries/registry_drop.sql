-- registry_drop: registry rows that have no children left go.
DELETE FROM launch_shards
WHERE children <= 0 AND (zone, launch_expression) IN (
    SELECT {keys of launch_shards} FROM {keys of launch_shards.rows $1}
)
