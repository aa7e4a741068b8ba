-- ping: whether the database answers, and only reads.
SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::bool
