-- pruning_read: up to where has been pruned.
SELECT before_us FROM pruning WHERE one = 1
