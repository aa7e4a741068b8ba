-- alerts_changed: an alert is about to change.
UPDATE alert_changes SET changes = changes + 1
