-- alerts_count: how many alerts a namespace has, as far as anybody wants to know.
SELECT count(*) FROM (SELECT 1 FROM alerts WHERE namespace = $1 LIMIT $2) AS counted
