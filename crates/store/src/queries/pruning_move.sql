-- pruning_move: pruning goes further, from where the writer has seen it ($1, NULL where there was nothing).
INSERT INTO pruning (one, before_us) VALUES (1, $2)
ON CONFLICT (one) DO UPDATE SET before_us = excluded.before_us WHERE pruning.before_us = $1
