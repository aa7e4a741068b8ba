-- minutes_put: what owners have counted of minutes, as far as they have come.
INSERT INTO minute_counts ({minute_counts})
SELECT {minute_counts}
FROM {minute_counts.rows $1}
WHERE true
ON CONFLICT ({minute_counts.key}) DO UPDATE SET {minute_counts.set excluded}
