-- policies_hold: which policies exist; none of them goes before the commit.
SELECT uid FROM policies
WHERE uid IN (SELECT unhex(value, '-') FROM json_each($1))
