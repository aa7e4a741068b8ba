-- keys_lock: held by whoever makes a key, until the commit.
SELECT one FROM installation WHERE one = 1
{postgres FOR UPDATE}
