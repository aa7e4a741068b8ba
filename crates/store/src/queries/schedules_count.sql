-- schedules_count: how many schedules a namespace has, as far as anybody wants to know.
SELECT count(*) FROM (SELECT 1 FROM schedules WHERE namespace = $1 LIMIT $2) AS counted
