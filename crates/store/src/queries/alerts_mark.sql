-- alerts_mark: what is another after each change of any alert.
SELECT changes FROM alert_changes
