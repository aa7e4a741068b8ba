-- As commit_one_by_one, where many rows are looked up: each kind by one statement, as commit_many does, which versions before this
-- one still call. Each row is looked up by its whole key, and written at the place where it was found: the subqueries that OFFSET 0
-- or LIMIT 1 keeps apart leave the planner no other way, whatever the tables held when it planned. Nobody else writes these rows
-- while the fences hold.
CREATE FUNCTION commit_at_once(
    -- As of commit_one_by_one.
    integer[], uuid[],
    integer[], uuid[], bigint[], uuid[], integer[], integer[], text[], text[], integer[], integer[], integer[],
    integer[], integer[], integer[], integer[], text[], text[], bigint[], bigint[],
    integer[], uuid[], integer[],
    integer[], uuid[], integer[], bytea[], bytea[], bigint[],
    integer[], uuid[], integer[], integer[], bigint[], bytea[], bytea[],
    integer[], uuid[], integer[], integer[], text[], integer[], bigint[], bigint[], bigint[], text[]
) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_material = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    written integer;
BEGIN
    -- A lease's id is that of one shard, and was never another's.
    PERFORM FROM queue_shards
    WHERE shard_id = ANY ($1) AND lease_id = ANY ($2)
    FOR NO KEY UPDATE;
    GET DIAGNOSTICS written = ROW_COUNT;
    IF written < cardinality($1) THEN
        RAISE EXCEPTION 'one of the shards % has another owner', $1 USING ERRCODE = 'TG001';
    END IF;
    UPDATE runs SET
        generation = new.generation, policy_uid = new.policy_uid, events = new.events, priority = new.priority,
        state = new.state, reason = new.reason, next_index = new.next_index, succeeded = new.succeeded,
        failed = new.failed, dead = new.dead, expired = new.expired, cancelled = new.cancelled, lost = new.lost,
        cursor_in = new.cursor_in, cursor_out = new.cursor_out, started_us = new.started_us,
        finished_us = new.finished_us
    FROM (
            SELECT unnest($3) AS shard_id, unnest($4) AS run_id, unnest($5) AS generation, unnest($6) AS policy_uid,
                unnest($7) AS events, unnest($8) AS priority, unnest($9) AS state, unnest($10) AS reason,
                unnest($11) AS next_index, unnest($12) AS succeeded, unnest($13) AS failed, unnest($14) AS dead,
                unnest($15) AS expired, unnest($16) AS cancelled, unnest($17) AS lost, unnest($18) AS cursor_in,
                unnest($19) AS cursor_out, unnest($20) AS started_us, unnest($21) AS finished_us
        ) AS new
        CROSS JOIN LATERAL (
            SELECT ctid AS place FROM runs
            WHERE shard_id = new.shard_id AND run_id >= new.run_id AND run_id <= new.run_id
            ORDER BY run_id DESC
            LIMIT 1
        ) AS found
    WHERE runs.ctid = found.place;
    GET DIAGNOSTICS written = ROW_COUNT;
    IF written < cardinality($3) THEN
        RAISE EXCEPTION 'one of the runs % is not there', $4 USING ERRCODE = 'no_data_found';
    END IF;
    DELETE FROM token_batches WHERE ctid = ANY (ARRAY(
        SELECT found.place
        FROM (SELECT unnest($22) AS shard_id, unnest($23) AS run_id, unnest($24) AS first_idx) AS old
            CROSS JOIN LATERAL (
                SELECT ctid AS place FROM token_batches
                WHERE shard_id = old.shard_id AND run_id = old.run_id AND first_idx = old.first_idx OFFSET 0
            ) AS found
    ));
    UPDATE token_batches SET gone = new.gone, held = new.held, delivered_us = new.delivered_us
    FROM (
            SELECT unnest($25) AS shard_id, unnest($26) AS run_id, unnest($27) AS first_idx, unnest($28) AS gone,
                unnest($29) AS held, unnest($30) AS delivered_us
        ) AS new
        CROSS JOIN LATERAL (
            SELECT ctid AS place FROM token_batches
            WHERE shard_id = new.shard_id AND run_id = new.run_id AND first_idx = new.first_idx OFFSET 0
        ) AS found
    WHERE token_batches.ctid = found.place;
    INSERT INTO token_batches (shard_id, run_id, first_idx, events, acquired_us, gone, held)
    SELECT unnest($31), unnest($32), unnest($33), unnest($34), unnest($35), unnest($36), unnest($37);
    INSERT INTO event_history (shard_id, run_id, idx, events, outcome, attempt, acquired_us, delivered_us,
        finished_us, message)
    SELECT unnest($38), unnest($39), unnest($40), unnest($41), unnest($42), unnest($43), unnest($44), unnest($45),
        unnest($46), unnest($47);
END
$$;
