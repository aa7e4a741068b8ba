-- runs_not_listed: the items of a run are not fetched any more: it makes no events.
UPDATE runs SET state = 'SKIPPED', reason = $4, finished_us = $5
WHERE shard_id = $1 AND run_id = $2 AND state = 'LISTING' AND generation = $3
