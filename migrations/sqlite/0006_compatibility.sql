-- Versions of the service side by side, while they are exchanged one after another.

-- The oldest version that can work on this schema, by its newest migration. A migration that older versions cannot live
-- with raises it; from then on they refuse to start.
CREATE TABLE schema_compatibility (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    oldest INTEGER NOT NULL
) STRICT;
INSERT INTO schema_compatibility (one, oldest) VALUES (1, 6);
