-- tasks_claim: claims tasks of the oldest windows that nobody works on. The lease of one that has been claimed before ends one
-- microsecond later, so that the answer can tell it: what it held is gone by then.
UPDATE scan_tasks SET lease_id = $1, lease_until_us = $2 + CASE WHEN lease_until_us IS NULL THEN 0 ELSE 1 END
FROM (
    SELECT scan_tasks.start_us, zone, launch_expression, end_us
    FROM scan_tasks JOIN scan_windows ON scan_windows.start_us = scan_tasks.start_us
    WHERE lease_until_us IS NULL OR lease_until_us <= $3
    ORDER BY scan_tasks.start_us, zone, launch_expression
    LIMIT $4
    {postgres FOR UPDATE OF scan_tasks SKIP LOCKED}
) AS free
WHERE scan_tasks.start_us = free.start_us
    AND scan_tasks.zone = free.zone
    AND scan_tasks.launch_expression = free.launch_expression
RETURNING scan_tasks.start_us,
    (SELECT end_us FROM scan_windows WHERE scan_windows.start_us = scan_tasks.start_us) AS end_us,
    scan_tasks.zone, scan_tasks.launch_expression, slots, checkpoint_slot, checkpoint_uid, checkpoint_ordinal,
    lease_until_us > $2 AS again
