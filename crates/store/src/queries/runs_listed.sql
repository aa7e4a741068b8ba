-- runs_listed: the items of a run have been fetched: its owner takes it in. Without any, the owner judges whether it is one.
UPDATE runs SET state = 'EMITTED', events = $4, units_max = $5, reason = ''
WHERE shard_id = $1 AND run_id = $2 AND state = 'LISTING' AND generation = $3
