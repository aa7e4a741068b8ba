-- schema_raise: versions that do not know this migration cannot work on the schema any more.
UPDATE schema_compatibility SET oldest = $1 WHERE one = 1 AND oldest < $1
