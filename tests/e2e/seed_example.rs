//! The example of which the design began: `{hour: "3,6,9"}` and stars, over a clock change.

use tollgate_harness::{Cli, Database, Kind, Service};

async fn three_hours_are_three_children(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let cli = Cli::new(service.url());
    let yaml = "kind: Schedule\n\
                id: rounds\n\
                timeZone: Europe/Berlin\n\
                triggers:\n\
                - fields: {month: \"*\", dayOfMonth: \"*\", dayOfWeek: \"*\", hour: \"3,6,9\", minute: \"*\"}\n\
                target: {http: {url: \"http://127.0.0.1:9/\"}}\n";
    let applied = cli.apply(yaml);
    assert_eq!(applied.code, 0, "{applied:?}");
    let schedule = cli.json(&["get", "schedule", "rounds"]);
    assert_eq!(schedule["childrenCount"], 3, "{schedule}");
    assert_eq!(schedule["launchClasses"], serde_json::json!(["H"]), "{schedule}");
    let children = cli.json(&["get", "children", "rounds"]);
    let mut expressions: Vec<_> = children["children"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|child| child["launchExpression"].as_str())
        .collect();
    expressions.sort_unstable();
    assert_eq!(expressions, ["H.3", "H.6", "H.9"], "{children}");
    // Clocks go from 02:00 to 03:00 on 29 March: 03:00 there is 01:00 UTC, a day earlier it was 02:00 UTC.
    let preview = cli.json(&["preview", "rounds", "--from", "2026-03-28T00:00:00Z", "--count", "6"]);
    let launches: Vec<(&str, &str, &str)> = preview["launchTimes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|launch| {
            let text = |name: &str| launch[name].as_str().unwrap_or_default();
            (text("time"), text("localTime"), text("utcOffset"))
        })
        .collect();
    let expected = [
        ("2026-03-28T02:00:00Z", "2026-03-28 03:00:00", "+01:00"),
        ("2026-03-28T05:00:00Z", "2026-03-28 06:00:00", "+01:00"),
        ("2026-03-28T08:00:00Z", "2026-03-28 09:00:00", "+01:00"),
        ("2026-03-29T01:00:00Z", "2026-03-29 03:00:00", "+02:00"),
        ("2026-03-29T04:00:00Z", "2026-03-29 06:00:00", "+02:00"),
        ("2026-03-29T07:00:00Z", "2026-03-29 09:00:00", "+02:00"),
    ];
    assert_eq!(launches, expected);
    let table = cli.ok(&["preview", "rounds", "--from", "2026-03-28T00:00:00Z", "--count", "6"]);
    assert!(
        table.contains("2026-03-29 03:00:00") && table.contains("launch classes: H; children: 3"),
        "{table}"
    );
    service.stop().await;
}

on_both_stores!(three_hours_are_three_children);
