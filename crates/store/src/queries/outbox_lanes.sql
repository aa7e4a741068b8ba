-- outbox_lanes: how many notices wait, by the shard that is told first and by namespace.
SELECT shard, namespace, count(*) AS waiting FROM plan_outbox
GROUP BY shard, namespace
ORDER BY shard, namespace
