-- windows_lock: nobody else announces a window meanwhile. An empty table has no row that two first windows could meet at.
SELECT one FROM installation WHERE one = 1 {postgres FOR UPDATE}
