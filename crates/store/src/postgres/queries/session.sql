-- session: the backend of a new connection, and whether it can write: a standby cannot, nor a server that was told so.
SELECT pg_backend_pid(), pg_is_in_recovery() OR current_setting('transaction_read_only')::bool
