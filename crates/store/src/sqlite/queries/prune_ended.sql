-- prune_ended: the batches of ended events of the runs that prune_runs deletes next.
DELETE FROM ended_batches
WHERE shard_id = $1 AND (run_id, first_idx, finished_us) IN (
    SELECT batch.run_id, batch.first_idx, batch.finished_us
    FROM (
        SELECT run_id FROM runs
        WHERE shard_id = $1 AND finished_us < $2 AND state IN ('FINISHED', 'CANCELLED', 'SKIPPED')
        ORDER BY finished_us, rowid
        LIMIT $3
    ) AS leaving
    CROSS JOIN ended_batches AS batch ON batch.shard_id = $1 AND batch.run_id = leaving.run_id
    LIMIT $3
)
