-- installation_seal: stores the installation's secret in another form, unless somebody else has done so.
UPDATE installation SET secret = $2 WHERE one = 1 AND secret = $1
