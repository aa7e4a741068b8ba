-- What nearly every commit of an owner writes, for any number of shards, which stand or fall together. No shard comes twice.
-- As commit_shards, which versions before this one still call, with two differences:
-- The fence locks the shard's row, and leaves it as it is: what a commit changes has an old version, and while somebody holds a
-- snapshot (a dump, a transaction that is idle, a standby's feedback) these stay, and every later commit walks over all of them.
-- A run's row has to change with each commit. It is looked up from the end of its key's entries in the index, where the latest
-- version is.
-- Nothing takes its value from a subscript alone (coalesce of one value is that value): Citus 13.2 and 14.0 end with signal 11.
CREATE FUNCTION commit_one_by_one(
    -- $1, $2: shards and their leases.
    integer[], uuid[],
    -- $3 to $21: runs as they are now, each with its shard. What never changes is left out.
    integer[], uuid[], bigint[], uuid[], integer[], integer[], text[], text[], integer[], integer[], integer[],
    integer[], integer[], integer[], integer[], text[], text[], bigint[], bigint[],
    -- $22 to $24: batches of which nothing is left.
    integer[], uuid[], integer[],
    -- $25 to $30: batches as they are now.
    integer[], uuid[], integer[], bytea[], bytea[], bigint[],
    -- $31 to $37: new batches.
    integer[], uuid[], integer[], integer[], bigint[], bytea[], bytea[],
    -- $38 to $47: the done queue.
    integer[], uuid[], integer[], integer[], text[], integer[], bigint[], bigint[], bigint[], text[]
) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    FOR i IN 1 .. cardinality($1) LOOP
        PERFORM FROM queue_shards
        WHERE shard_id = $1[i] AND lease_id = $2[i]
        FOR NO KEY UPDATE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'shard % has another owner', $1[i] USING ERRCODE = 'TG001';
        END IF;
    END LOOP;
    FOR i IN 1 .. cardinality($3) LOOP
        UPDATE runs SET
            generation = coalesce($5[i]), policy_uid = coalesce($6[i]), events = coalesce($7[i]),
            priority = coalesce($8[i]), state = coalesce($9[i]), reason = coalesce($10[i]),
            next_index = coalesce($11[i]), succeeded = coalesce($12[i]), failed = coalesce($13[i]),
            dead = coalesce($14[i]), expired = coalesce($15[i]), cancelled = coalesce($16[i]), lost = coalesce($17[i]),
            cursor_in = coalesce($18[i]), cursor_out = coalesce($19[i]), started_us = coalesce($20[i]),
            finished_us = coalesce($21[i])
        WHERE shard_id = $3[i] AND ctid = (
            SELECT ctid FROM runs
            WHERE shard_id = $3[i] AND run_id >= $4[i] AND run_id <= $4[i]
            ORDER BY run_id DESC
            LIMIT 1
        );
        IF NOT FOUND THEN
            RAISE EXCEPTION 'shard % has no run %', $3[i], $4[i] USING ERRCODE = 'no_data_found';
        END IF;
    END LOOP;
    FOR i IN 1 .. cardinality($22) LOOP
        DELETE FROM token_batches
        WHERE shard_id = $22[i] AND run_id = $23[i] AND first_idx = $24[i];
    END LOOP;
    FOR i IN 1 .. cardinality($25) LOOP
        UPDATE token_batches SET
            gone = coalesce($28[i]), held = coalesce($29[i]), delivered_us = coalesce($30[i])
        WHERE shard_id = $25[i] AND run_id = $26[i] AND first_idx = $27[i];
    END LOOP;
    INSERT INTO token_batches (shard_id, run_id, first_idx, events, acquired_us, gone, held)
    SELECT unnest($31), unnest($32), unnest($33), unnest($34), unnest($35), unnest($36), unnest($37);
    INSERT INTO event_history (shard_id, run_id, idx, events, outcome, attempt, acquired_us, delivered_us,
        finished_us, message)
    SELECT unnest($38), unnest($39), unnest($40), unnest($41), unnest($42), unnest($43), unnest($44), unnest($45),
        unnest($46), unnest($47);
END
$$;

-- The entries of one key stay apart, in the order in which its versions were written.
ALTER INDEX runs_pkey SET (deduplicate_items = off);

-- What has ended is soon cleaned up, however much there is besides.
ALTER TABLE runs SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.02);
ALTER TABLE tokens SET (autovacuum_vacuum_scale_factor = 0.01);
ALTER TABLE token_batches SET (autovacuum_vacuum_scale_factor = 0.01);
ALTER TABLE shard_inbox SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
ALTER TABLE shard_schedules SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
ALTER TABLE run_specs SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
ALTER TABLE scan_tasks SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
