-- schema_exists: whether the database has had any migration.
SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = '_sqlx_migrations')
