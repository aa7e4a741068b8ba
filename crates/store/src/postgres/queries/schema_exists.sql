-- schema_exists: whether the database has had any migration.
SELECT to_regclass('_sqlx_migrations') IS NOT NULL
