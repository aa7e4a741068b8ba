-- As commit_events, which versions before this one still call, for the commits of any number of shards, which stand or fall
-- together. No shard comes twice.
CREATE FUNCTION commit_shards(
    -- $1 to $3: shards, their leases and sequence numbers.
    integer[], uuid[], bigint[],
    -- $4 to $22: runs as they are now, each with its shard. What never changes is left out.
    integer[], uuid[], bigint[], uuid[], integer[], integer[], text[], text[], integer[], integer[], integer[],
    integer[], integer[], integer[], integer[], text[], text[], bigint[], bigint[],
    -- $23 to $25: batches of which nothing is left.
    integer[], uuid[], integer[],
    -- $26 to $31: batches as they are now.
    integer[], uuid[], integer[], bytea[], bytea[], bigint[],
    -- $32 to $38: new batches.
    integer[], uuid[], integer[], integer[], bigint[], bytea[], bytea[],
    -- $39 to $48: the done queue.
    integer[], uuid[], integer[], integer[], text[], integer[], bigint[], bigint[], bigint[], text[]
) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    FOR i IN 1 .. cardinality($1) LOOP
        UPDATE queue_shards SET seq = seq + 1
        WHERE shard_id = $1[i] AND lease_id = $2[i] AND seq = $3[i];
        IF NOT FOUND THEN
            RAISE EXCEPTION 'shard % has another owner', $1[i] USING ERRCODE = 'TG001';
        END IF;
    END LOOP;
    FOR i IN 1 .. cardinality($4) LOOP
        UPDATE runs SET
            generation = $6[i], policy_uid = $7[i], events = $8[i], priority = $9[i], state = $10[i],
            reason = $11[i], next_index = $12[i], succeeded = $13[i], failed = $14[i], dead = $15[i],
            expired = $16[i], cancelled = $17[i], lost = $18[i], cursor_in = $19[i], cursor_out = $20[i],
            started_us = $21[i], finished_us = $22[i]
        WHERE shard_id = $4[i] AND run_id = $5[i];
        IF NOT FOUND THEN
            RAISE EXCEPTION 'shard % has no run %', $4[i], $5[i] USING ERRCODE = 'no_data_found';
        END IF;
    END LOOP;
    FOR i IN 1 .. cardinality($23) LOOP
        DELETE FROM token_batches
        WHERE shard_id = $23[i] AND run_id = $24[i] AND first_idx = $25[i];
    END LOOP;
    FOR i IN 1 .. cardinality($26) LOOP
        UPDATE token_batches SET gone = $29[i], held = $30[i], delivered_us = $31[i]
        WHERE shard_id = $26[i] AND run_id = $27[i] AND first_idx = $28[i];
    END LOOP;
    INSERT INTO token_batches (shard_id, run_id, first_idx, events, acquired_us, gone, held)
    SELECT unnest($32), unnest($33), unnest($34), unnest($35), unnest($36), unnest($37), unnest($38);
    INSERT INTO event_history (shard_id, run_id, idx, events, outcome, attempt, acquired_us, delivered_us,
        finished_us, message)
    SELECT unnest($39), unnest($40), unnest($41), unnest($42), unnest($43), unnest($44), unnest($45), unnest($46),
        unnest($47), unnest($48);
END
$$;
