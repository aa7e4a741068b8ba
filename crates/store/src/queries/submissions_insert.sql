-- submissions_insert: a submission; one of the same request id, or of the same run, stays as it is.
INSERT INTO submissions (schedule_uid, request_id, shard_id, run_id, launch_us, asked, created_us, touched_us, items, digest)
VALUES ($1, $2, $3, $4, $5, $6, $7, $7, 0, $8)
ON CONFLICT DO NOTHING
