-- installation_read: the installation's identity.
SELECT id, secret, shards FROM installation WHERE one = 1
