-- Acquired batches: one row for the events of a run that were acquired at once, until each has ended or got a row of its
-- own in `tokens`.
CREATE TABLE token_batches (
    shard_id integer NOT NULL,
    run_id uuid NOT NULL,
    -- The index of the first event.
    first_idx integer NOT NULL,
    -- How many events it held at first.
    events integer NOT NULL,
    acquired_us bigint NOT NULL,
    -- A bit an event, the first one in the lowest bit of the first byte: it is no longer in the batch.
    gone bytea NOT NULL,
    -- In the same order: its consumer has it.
    held bytea NOT NULL,
    -- When the latest of those that are held was delivered.
    delivered_us bigint,
    PRIMARY KEY (shard_id, run_id, first_idx)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);

-- What nearly every commit of an owner writes, behind the fence, in one round trip: runs, batches and the done queue.
-- False, and nothing written, where somebody else owns the shard. The settings keep plans to keys, whatever the tables
-- held when they were made; rows that change are looked up one by one for the same reason.
CREATE FUNCTION commit_events(
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
DECLARE
    new record;
BEGIN
    UPDATE queue_shards SET seq = seq + 1
    WHERE shard_id = $1 AND lease_id = $2 AND seq = $3;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    FOR new IN
        SELECT * FROM unnest($4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)
            AS run (run_id, generation, policy_uid, events, priority, state, reason, next_index, succeeded, failed,
                dead, expired, cancelled, lost, cursor_in, cursor_out, started_us, finished_us)
    LOOP
        UPDATE runs SET
            generation = new.generation, policy_uid = new.policy_uid, events = new.events, priority = new.priority,
            state = new.state, reason = new.reason, next_index = new.next_index, succeeded = new.succeeded,
            failed = new.failed, dead = new.dead, expired = new.expired, cancelled = new.cancelled,
            lost = new.lost, cursor_in = new.cursor_in, cursor_out = new.cursor_out,
            started_us = new.started_us, finished_us = new.finished_us
        WHERE shard_id = $1 AND run_id = new.run_id;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'shard % has no run %', $1, new.run_id USING ERRCODE = 'no_data_found';
        END IF;
    END LOOP;
    FOR new IN SELECT * FROM unnest($22, $23) AS batch (run_id, first_idx) LOOP
        DELETE FROM token_batches
        WHERE shard_id = $1 AND run_id = new.run_id AND first_idx = new.first_idx;
    END LOOP;
    FOR new IN
        SELECT * FROM unnest($24, $25, $26, $27, $28) AS batch (run_id, first_idx, gone, held, delivered_us)
    LOOP
        UPDATE token_batches SET gone = new.gone, held = new.held, delivered_us = new.delivered_us
        WHERE shard_id = $1 AND run_id = new.run_id AND first_idx = new.first_idx;
    END LOOP;
    INSERT INTO token_batches (shard_id, run_id, first_idx, events, acquired_us, gone, held)
    SELECT $1, run_id, first_idx, events, acquired_us, gone, held
    FROM unnest($29, $30, $31, $32, $33, $34) AS batch (run_id, first_idx, events, acquired_us, gone, held);
    INSERT INTO event_history (shard_id, run_id, idx, events, outcome, attempt, acquired_us, delivered_us,
        finished_us, message)
    SELECT $1, run_id, idx, events, outcome, attempt, acquired_us, delivered_us, finished_us, message
    FROM unnest($35, $36, $37, $38, $39, $40, $41, $42, $43)
        AS done (run_id, idx, events, outcome, attempt, acquired_us, delivered_us, finished_us, message);
    RETURN true;
END
$$;

-- Versions that do not know batches would count too few tokens.
UPDATE schema_compatibility SET oldest = 8;
