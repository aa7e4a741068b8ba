-- namespaces_list: namespaces in which there is a schedule, a policy, a calendar or an alert, in order, from after $1 on. From
-- one to the next by the indexes that begin with the namespace, however much is in it.
WITH RECURSIVE known (namespace) AS (
    SELECT (
        SELECT MIN(least)
        FROM (
            SELECT MIN(namespace) AS least FROM schedules WHERE namespace > $1
            UNION ALL
            SELECT MIN(namespace) AS least FROM policies WHERE namespace > $1
            UNION ALL
            SELECT MIN(namespace) AS least FROM calendars WHERE namespace > $1
            UNION ALL
            SELECT MIN(namespace) AS least FROM alerts WHERE namespace > $1
        ) AS of_each
    )
    UNION ALL
    SELECT (
        SELECT MIN(least)
        FROM (
            SELECT MIN(namespace) AS least FROM schedules WHERE namespace > known.namespace
            UNION ALL
            SELECT MIN(namespace) AS least FROM policies WHERE namespace > known.namespace
            UNION ALL
            SELECT MIN(namespace) AS least FROM calendars WHERE namespace > known.namespace
            UNION ALL
            SELECT MIN(namespace) AS least FROM alerts WHERE namespace > known.namespace
        ) AS of_each
    )
    FROM known
    WHERE known.namespace IS NOT NULL
)
SELECT namespace FROM known WHERE namespace IS NOT NULL LIMIT $2
