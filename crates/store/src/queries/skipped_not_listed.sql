-- skipped_not_listed: how many triggers of each schedule made no run as their items could not be fetched, of the latest that were
-- recorded since a moment, $2 at most, and the first of them; those with the most first.
SELECT schedules.namespace, schedules.id, COALESCE(schedules.policy_id, ''), COUNT(*), MIN(missed.launch_us)
FROM (
    SELECT schedule_uid, launch_us FROM skipped_triggers
    WHERE recorded_us >= $1 AND reason = 'NOT_LISTED'
    ORDER BY recorded_us DESC
    LIMIT $2
) AS missed
JOIN schedules ON schedules.uid = missed.schedule_uid
GROUP BY schedules.namespace, schedules.id, schedules.policy_id
ORDER BY 4 DESC, 1, 2
