-- moves_about_runs: what is recorded in a shard's inbox about single runs; what comes later is handed on.
SELECT {shard_inbox} FROM shard_inbox
WHERE shard_id = $1
    AND (body LIKE '{"kind":"release"%' OR body LIKE '{"kind":"sent"%' OR body LIKE '{"kind":"cancel_run"%')
ORDER BY message_id
LIMIT 10000
