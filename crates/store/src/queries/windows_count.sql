-- windows_count: adds to the count of a window's runs, and holds its row, so that of two who complete its last
-- tasks one is the second.
UPDATE scan_windows SET runs = runs + $2 WHERE start_us = $1
