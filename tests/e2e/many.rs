//! The same to many schedules, and forms that are sent twice: on the command line and in the console.

use serde_json::{Value, json};
use tollgate_harness::{Cli, Database, Kind, Service};

use crate::console::Browser;

const PATH: &str = "/n/default/schedules";

/// Manual schedules: `a` and `b` of billing, and `c` of nobody.
fn file() -> String {
    let schedule = |id: &str, labels: &str| {
        format!(
            "kind: Schedule\nid: {id}\nlabels: {labels}\ntarget: {{http: {{url: \"http://127.0.0.1:9/\"}}}}\n"
        )
    };
    [schedule("a", "{team: billing}"), schedule("b", "{team: billing}"), schedule("c", "{}")].join("---\n")
}

fn runs(cli: &Cli) -> usize {
    let Value::Array(runs) = cli.json(&["list", "runs", "--limit", "0"])["runs"].clone() else { return 0 };
    runs.len()
}

async fn many_are_chosen_by_label(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let (cli, browser) = (Cli::new(service.url()), Browser::new(&service));
    let made = cli.run_with(&["apply", "-f", "-"], &file());
    assert!(
        made.out.ends_with("3 created, 0 updated, 0 unchanged\n") && !made.err.contains("never"),
        "{made:?}"
    );
    let listed = cli.ok(&["get", "schedules"]);
    assert_eq!(listed.matches("manual").count(), 3, "{listed}");
    assert_eq!(cli.ok(&["preview", "a"]), "it is manual: it fires by `tollgate trigger ID` alone\n");

    let pause = ["pause", "schedules", "-l", "team=billing"];
    assert_eq!(cli.ok(&[&pause[..], &["--dry-run"]].concat()), "2 schedules match\n");
    assert_eq!(cli.ok(&pause), "2 schedules match; nothing is changed without --yes\n");
    let paused = cli.ok(&[&pause[..], &["--yes", "--reason", "month end"]].concat());
    assert_eq!(paused, "paused 2 schedules of 2 that matched\n");
    assert!(cli.ok(&["audit", "schedule/b"]).contains("month end"));
    let triggered = cli.ok(&["trigger", "--filter", "name=*a*", "-y"]);
    assert!(triggered.starts_with("a: namespaces/default/schedules/a is paused by "), "{triggered}");
    assert!(triggered.ends_with("triggered 0 schedules of 1 that matched; 1 refused\n"), "{triggered}");
    let resumed = cli.json(&["resume", "schedules", "--filter", "state=PAUSED", "-y"]);
    assert_eq!(resumed, json!({"matched": 2, "done": 2, "refused": 0, "refusals": []}));
    let again = ["trigger", "-l", "team=billing", "-y", "--request-id", "x"];
    assert_eq!([cli.ok(&again), cli.ok(&again)], ["triggered 2 schedules of 2 that matched\n"; 2]);
    assert_eq!(runs(&cli), 2, "the same id makes no other run");
    let one = ["trigger", "c", "--request-id", "x", "-o", "name"];
    assert_eq!(cli.ok(&one), cli.ok(&one));
    let other = cli.run(&["trigger", "c", "--request-id", "x", "--events", "3"]);
    assert!(other.code == 1 && other.err.contains("events was not given, and is 3"), "{other:?}");

    let page = browser.page(&format!("{PATH}?label=team%3Dbilling")).await;
    page.shows(&["by hand only", "manual", "All of these:", "Delete…"]);
    assert!(!browser.page(PATH).await.text.contains("All of these:"), "not of all there are");
    let order = |action: &'static str| [("action", action), ("filter", "label.team=billing")];
    let asked = browser.post(PATH, &order("delete")).await;
    asked.shows(&["Delete all of these schedules?", "2 schedules", "label.team=billing"]);
    assert_eq!(
        cli.ok(&["get", "schedules"]).matches("manual").count(),
        3,
        "nothing is done before it is confirmed"
    );
    let before = runs(&cli);
    let confirmed = [("action", "trigger"), ("filter", "label.team=billing"), ("request_id", "console-1")];
    for _ in 0..2 {
        assert!(browser.confirmed(PATH, &confirmed, "a drill").await.goes_to().starts_with(PATH));
    }
    assert_eq!(runs(&cli), before + 2, "a form that is sent twice is one request");
    let single = [("action", "trigger"), ("request_id", "console-2"), ("launch_time", ""), ("priority", "9")];
    let [one, two] = [
        browser.confirmed(&format!("{PATH}/c"), &single, "a drill").await,
        browser.confirmed(&format!("{PATH}/c"), &single, "a drill").await,
    ];
    assert_eq!(one.goes_to(), two.goes_to(), "a double click leads to one run");
    browser.confirmed(PATH, &order("delete"), "gone").await.goes_to();
    assert_eq!(cli.ok(&["get", "schedules"]).matches("manual").count(), 1);
    service.stop().await;
}

on_both_stores!(many_are_chosen_by_label);
