-- What nearly every commit of an owner writes, as before, for two thirds of the server's CPU: rows that change are taken from
-- the arrays one by one, without a query for each array, and what is inserted is not gathered in temporary tables first.
CREATE OR REPLACE FUNCTION commit_events(
    -- $1 to $3: shard, lease, sequence number.
    integer, uuid, bigint,
    -- $4 to $21: runs as they are now. What never changes is left out.
    uuid[], bigint[], uuid[], integer[], integer[], text[], text[], integer[], integer[], integer[], integer[],
    integer[], integer[], integer[], text[], text[], bigint[], bigint[],
    -- $22, $23: batches of which nothing is left.
    uuid[], integer[],
    -- $24 to $28: batches as they are now.
    uuid[], integer[], bytea[], bytea[], bigint[],
    -- $29 to $34: new batches.
    uuid[], integer[], integer[], bigint[], bytea[], bytea[],
    -- $35 to $43: the done queue.
    uuid[], integer[], integer[], text[], integer[], bigint[], bigint[], bigint[], text[]
) RETURNS boolean
LANGUAGE plpgsql
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    UPDATE queue_shards SET seq = seq + 1
    WHERE shard_id = $1 AND lease_id = $2 AND seq = $3;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    FOR i IN 1 .. coalesce(cardinality($4), 0) LOOP
        UPDATE runs SET
            generation = $5[i], policy_uid = $6[i], events = $7[i], priority = $8[i], state = $9[i],
            reason = $10[i], next_index = $11[i], succeeded = $12[i], failed = $13[i], dead = $14[i],
            expired = $15[i], cancelled = $16[i], lost = $17[i], cursor_in = $18[i], cursor_out = $19[i],
            started_us = $20[i], finished_us = $21[i]
        WHERE shard_id = $1 AND run_id = $4[i];
        IF NOT FOUND THEN
            RAISE EXCEPTION 'shard % has no run %', $1, $4[i] USING ERRCODE = 'no_data_found';
        END IF;
    END LOOP;
    FOR i IN 1 .. coalesce(cardinality($22), 0) LOOP
        DELETE FROM token_batches
        WHERE shard_id = $1 AND run_id = $22[i] AND first_idx = $23[i];
    END LOOP;
    FOR i IN 1 .. coalesce(cardinality($24), 0) LOOP
        UPDATE token_batches SET gone = $26[i], held = $27[i], delivered_us = $28[i]
        WHERE shard_id = $1 AND run_id = $24[i] AND first_idx = $25[i];
    END LOOP;
    INSERT INTO token_batches (shard_id, run_id, first_idx, events, acquired_us, gone, held)
    SELECT $1, unnest($29), unnest($30), unnest($31), unnest($32), unnest($33), unnest($34);
    INSERT INTO event_history (shard_id, run_id, idx, events, outcome, attempt, acquired_us, delivered_us,
        finished_us, message)
    SELECT $1, unnest($35), unnest($36), unnest($37), unnest($38), unnest($39), unnest($40), unnest($41), unnest($42),
        unnest($43);
    RETURN true;
END
$$;
