-- partition_drop: a day of the done queue that is too old goes as a whole. The driver puts in the name.
DROP TABLE IF EXISTS {name}
