-- partition_hurry: what waits for a lock on the done queue has commits and readers wait behind it: not for long.
SET LOCAL lock_timeout = '100ms'
