-- partition_create: a table for one UTC day of the done queue, which nobody knows yet. The check spares the look at its rows when
-- it becomes a partition. DDL takes no parameters: the driver puts in the table, the name and the two moments.
CREATE TABLE IF NOT EXISTS {name} (
    LIKE {table} INCLUDING ALL,
    CHECK (finished_us >= {from_us} AND finished_us < {to_us})
)
