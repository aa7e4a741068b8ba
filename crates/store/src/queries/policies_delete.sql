-- policies_delete: a policy goes.
DELETE FROM policies WHERE uid = $1
