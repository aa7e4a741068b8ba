-- backends_living: which of these backends the server has.
SELECT pid FROM pg_stat_activity WHERE pid = ANY($1::int[])
