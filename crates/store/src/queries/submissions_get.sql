-- submissions_get: a submission by its request id.
SELECT schedule_uid, request_id, shard_id, run_id, launch_us, asked, created_us, items, digest, units_max, made_us
FROM submissions
WHERE schedule_uid = $1 AND request_id = $2
