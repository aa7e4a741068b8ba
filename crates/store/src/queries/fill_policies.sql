-- fill_policies: how many policies live in each queue shard.
SELECT shard AS shard_id, count(*) AS number FROM policies
GROUP BY shard
