-- schema_version: the newest migration that the database has had.
SELECT max(version) FROM _sqlx_migrations
