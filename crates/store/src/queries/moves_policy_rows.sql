-- moves_policy_rows: policies with another home.
UPDATE policies SET {policies with another home.set new}
FROM {policies with another home.rows $1}
WHERE policies.uid = new.uid
