-- schema_oldest: the newest migration of the oldest version that can work on the schema.
SELECT oldest FROM schema_compatibility WHERE one = 1
