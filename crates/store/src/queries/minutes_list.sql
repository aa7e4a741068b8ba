-- minutes_list: what became of events by steps of time, of a policy, a namespace or all. Of what waits and is held, a
-- minute that several owners counted has the most of these, and a step has the most of its minutes. $7 = 1: of one policy,
-- which lives in one shard, and in two where it moves within a minute.
SELECT
    minute_us - minute_us % $6 AS at_us,
    CAST(SUM(due) AS bigint) AS due,
    CAST(SUM(started) AS bigint) AS started,
    CAST(SUM(retried) AS bigint) AS retried,
    CAST(SUM(succeeded) AS bigint) AS succeeded,
    CAST(SUM(failed) AS bigint) AS failed,
    CAST(SUM(dead) AS bigint) AS dead,
    CAST(SUM(expired) AS bigint) AS expired,
    CAST(SUM(cancelled) AS bigint) AS cancelled,
    CAST(SUM(lost) AS bigint) AS lost,
    CAST(MAX(waiting) AS bigint) AS waiting,
    CAST(MAX(held) AS bigint) AS held
FROM (
    SELECT
        minute_us,
        SUM(due) AS due,
        SUM(started) AS started,
        SUM(retried) AS retried,
        SUM(succeeded) AS succeeded,
        SUM(failed) AS failed,
        SUM(dead) AS dead,
        SUM(expired) AS expired,
        SUM(cancelled) AS cancelled,
        SUM(lost) AS lost,
        SUM(waiting) AS waiting,
        SUM(held) AS held
    FROM (
        SELECT
            minute_us,
            SUM(due) AS due,
            SUM(started) AS started,
            SUM(retried) AS retried,
            SUM(succeeded) AS succeeded,
            SUM(failed) AS failed,
            SUM(dead) AS dead,
            SUM(expired) AS expired,
            SUM(cancelled) AS cancelled,
            SUM(lost) AS lost,
            MAX(waiting) AS waiting,
            MAX(held) AS held
        FROM minute_counts
        WHERE policy_uid = $1 AND shard_id {in int $2} AND minute_us >= $3 AND minute_us < $4
            AND (namespace = $5 OR $5 IS NULL)
        GROUP BY CASE WHEN $7 = 1 THEN 0 ELSE shard_id END, namespace, minute_us
    ) AS of_shards
    GROUP BY minute_us
) AS of_minutes
GROUP BY at_us
ORDER BY at_us
