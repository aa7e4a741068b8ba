-- children_count: how many children schedules have under each launch expression.
SELECT zone, launch_expression, count(*) AS children FROM schedule_children
WHERE schedule_uid {in uuid $1}
GROUP BY zone, launch_expression
