-- fill_schedules: how many schedules live in each queue shard.
SELECT shard AS shard_id, count(*) AS number FROM schedules
GROUP BY shard
