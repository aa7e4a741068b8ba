-- alerts_replace: an alert under another key, if it is as it was read.
UPDATE alerts SET spec = $2
WHERE uid = $1 AND spec = $3
