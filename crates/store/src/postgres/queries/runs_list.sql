-- runs_list: runs of a namespace, newest launch first.
-- cold: for users; looks in all shards, by an index that begins with the namespace.
SELECT {runs}
FROM runs
WHERE namespace = $1
    AND launch_us >= $2 AND launch_us < $3
    AND (launch_us, run_id) < ($4, $5)
    AND (cardinality($6::text[]) = 0 OR state = ANY($6::text[]))
    AND ($8::uuid IS NULL OR policy_uid = $8)
ORDER BY launch_us DESC, run_id DESC
LIMIT $7
