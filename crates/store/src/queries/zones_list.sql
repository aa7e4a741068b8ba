-- zones_list: zones that have children.
SELECT DISTINCT zone FROM launch_shards ORDER BY zone
