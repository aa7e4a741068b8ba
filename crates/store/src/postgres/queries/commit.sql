-- commit: what nearly every commit of an owner writes, for one shard or several, and their fences: all of it, or nothing where a
-- fence lets nothing through or a run is not there. $3: how many runs change that are not new.
-- Each row is looked up by its whole key, and written at the place where it was found: the subqueries that OFFSET 0 or
-- LIMIT 1 keeps apart leave the planner no other way, whatever the tables held when it planned. Nobody else writes
-- these rows while the fences hold. A run is found from the end of its key's entries in the index: it changes with each
-- commit, and its old versions pile up while a snapshot is held. What is new and there already is an error: a batch, an
-- end, a run, a message. Parts from "-- if" to "-- end" are there for commits that have such rows: a part costs some 10 µs,
-- with or without. Not for Citus, which refuses it.
WITH fence AS MATERIALIZED (
    -- A lease's id is that of one shard, and was never another's.
    SELECT shard_id FROM queue_shards
    WHERE shard_id = ANY ($1::int[]) AND lease_id = ANY ($2::uuid[])
    FOR NO KEY UPDATE
),
run AS MATERIALIZED (
    SELECT new.*, found.place
    FROM (SELECT {runs.unnest state}) AS new
    CROSS JOIN LATERAL (
        SELECT ctid AS place FROM runs
        WHERE shard_id = new.shard_id AND run_id >= new.run_id AND run_id <= new.run_id
        ORDER BY run_id DESC
        LIMIT 1
    ) AS found
),
verdict AS MATERIALIZED (
    SELECT is_mine, has_runs, is_mine AND has_runs AS is_written
    FROM (
        SELECT (SELECT count(*) FROM fence) = cardinality($1::int[]) AS is_mine,
            (SELECT count(*) FROM run) = $3::bigint AS has_runs
    ) AS verdict
),
-- if batches_gone
batch_gone AS (
    DELETE FROM token_batches
    WHERE (SELECT is_written FROM verdict) AND ctid = ANY (ARRAY(
        SELECT found.place
        FROM (SELECT {token_batches.unnest key}) AS old
        CROSS JOIN LATERAL (
            SELECT ctid AS place FROM token_batches
            WHERE shard_id = old.shard_id AND run_id = old.run_id AND first_idx = old.first_idx
            OFFSET 0
        ) AS found
    ))
    RETURNING first_idx
),
-- end batches_gone
-- if batches_changed
batch_changed AS (
    UPDATE token_batches SET {token_batches.set new}
    FROM (SELECT {token_batches.unnest state}) AS new
    CROSS JOIN LATERAL (
        SELECT ctid AS place FROM token_batches
        WHERE shard_id = new.shard_id AND run_id = new.run_id AND first_idx = new.first_idx
        OFFSET 0
    ) AS found
    WHERE token_batches.ctid = found.place AND (SELECT is_written FROM verdict)
),
-- end batches_changed
-- if batches_new
batch_new AS (
    INSERT INTO token_batches (shard_id, {token_batches})
    SELECT {token_batches.unnest all}
    WHERE (SELECT is_written FROM verdict)
    -- if batches_gone
    -- After those that go.
    AND (SELECT count(*) FROM batch_gone) >= 0
    -- end batches_gone
),
-- end batches_new
-- if unstarted_gone
unstarted_gone AS (
    DELETE FROM unstarted_events
    WHERE (SELECT is_written FROM verdict) AND ctid = ANY (ARRAY(
        SELECT found.place
        FROM (SELECT {unstarted_events.unnest key}) AS old
        CROSS JOIN LATERAL (
            SELECT ctid AS place FROM unstarted_events
            WHERE shard_id = old.shard_id AND run_id = old.run_id AND first_idx = old.first_idx
            OFFSET 0
        ) AS found
    ))
),
-- end unstarted_gone
-- if unstarted_put
unstarted_put AS (
    INSERT INTO unstarted_events (shard_id, {unstarted_events})
    SELECT {unstarted_events.unnest all}
    WHERE (SELECT is_written FROM verdict)
    ON CONFLICT (shard_id, run_id, first_idx) DO UPDATE SET {unstarted_events.set excluded}
),
-- end unstarted_put
-- if ended
ended AS (
    INSERT INTO ended_batches (shard_id, {ended_batches})
    SELECT {ended_batches.unnest all}
    WHERE (SELECT is_written FROM verdict)
),
-- end ended
-- if runs_new
run_new AS (
    INSERT INTO runs ({runs})
    SELECT {runs.unnest all}
    WHERE (SELECT is_written FROM verdict)
),
-- end runs_new
-- if inbox_new
message_new AS (
    INSERT INTO shard_inbox (shard_id, {shard_inbox})
    SELECT {shard_inbox.unnest all}
    WHERE (SELECT is_written FROM verdict)
),
-- end inbox_new
-- if inbox_done
message_done AS (
    DELETE FROM shard_inbox
    WHERE (SELECT is_written FROM verdict) AND ctid = ANY (ARRAY(
        SELECT found.place
        FROM (SELECT {shard_inbox.unnest key}) AS old
        CROSS JOIN LATERAL (
            SELECT ctid AS place FROM shard_inbox
            WHERE shard_id = old.shard_id AND message_id = old.message_id
            OFFSET 0
        ) AS found
    ))
),
-- end inbox_done
-- if history
ended_otherwise AS (
    INSERT INTO event_history (shard_id, {event_history})
    SELECT {event_history.unnest all}
    WHERE (SELECT is_written FROM verdict)
),
-- end history
run_changed AS (
    UPDATE runs SET {runs.set run}
    FROM run
    WHERE runs.ctid = run.place AND (SELECT is_written FROM verdict)
)
SELECT is_mine, has_runs FROM verdict
