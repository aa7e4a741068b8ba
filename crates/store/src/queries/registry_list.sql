-- registry_list: launch expressions that have children: those of $1, and all intervals and single shots.
SELECT zone, launch_expression FROM launch_shards
WHERE launch_expression {in text $1}
    OR launch_expression LIKE 'I.%'
    OR launch_expression LIKE 'A.%'
ORDER BY zone, launch_expression
