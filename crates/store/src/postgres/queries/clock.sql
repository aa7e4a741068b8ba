-- clock: what the server's clock shows, for comparing; the one statement that reads it.
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
