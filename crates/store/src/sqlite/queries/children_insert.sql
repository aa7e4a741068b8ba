-- children_insert: new children.
INSERT INTO schedule_children (zone, launch_expression, slot, schedule_uid, ordinal, rule)
SELECT zone, launch_expression, slot, schedule_uid, ordinal, rule
FROM (
    SELECT
        value ->> 'zone' AS zone,
        value ->> 'launch_expression' AS launch_expression,
        value ->> 'slot' AS slot,
        unhex(value ->> 'schedule_uid', '-') AS schedule_uid,
        value ->> 'ordinal' AS ordinal,
        value ->> 'rule' AS rule
    FROM json_each($1)
) AS new
