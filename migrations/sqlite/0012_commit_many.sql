-- Nothing changes: what an owner's commit writes is a function of the schema only on PostgreSQL. Both schemas count alike.
SELECT 1;
