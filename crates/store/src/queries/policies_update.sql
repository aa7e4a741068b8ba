-- policies_update: a policy as it is from now on. Its shard never changes.
UPDATE policies SET {policies.set new}
FROM {policies.rows $1}
WHERE policies.uid = new.uid
