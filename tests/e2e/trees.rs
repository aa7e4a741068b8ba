//! A tree of policies: applied in any order of the file, shown, changed, and deleted from its leaves on.

use serde_json::Value;
use tollgate_harness::{Answer, Cli, Database, Kind, Service, wait_for};

use super::console::Browser;

const ROOT: &str = "namespaces/default/policies/site";

fn example() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/tree.yaml")).unwrap()
}

fn refused(answer: &Answer, parts: &[&str]) {
    assert_ne!(answer.code, 0, "{answer:?}");
    for part in parts {
        assert!(answer.err.contains(part), "{part}: {answer:?}");
    }
}

async fn a_tree_is_applied_shown_and_deleted(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let cli = Cli::new(service.url());
    let yaml = example();
    // Each policy stands before its parent.
    let backwards =
        yaml.split("\n---\n").collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n---\n");
    let applied = cli.apply(&backwards);
    assert!(applied.code == 0 && applied.out.ends_with("4 created, 0 updated, 0 unchanged\n"), "{applied:?}");
    let again = cli.apply(&yaml);
    assert!(again.out.ends_with("0 created, 0 updated, 4 unchanged\n"), "{again:?}");

    let policy = |id: &str| cli.json(&["get", "policy", id]);
    let site = policy("site");
    for (id, parent) in [("imports", "site"), ("exports", "site"), ("exports-slow", "exports")] {
        let policy = policy(id);
        assert_eq!(policy["parent"], format!("namespaces/default/policies/{parent}"), "{policy}");
        assert_eq!(policy["shard"], site["shard"], "a tree lives in one queue shard: {policy}");
    }
    assert_eq!(
        (&policy("imports")["floor"], &policy("imports")["weight"]),
        (&Value::from(30), &Value::from(2))
    );
    let table = cli.ok(&["get", "policies"]);
    let row = table.lines().find(|line| line.starts_with("exports-slow")).unwrap();
    assert_eq!(row.split_whitespace().nth(2), Some("exports"), "{table}");
    // What is exported is found unchanged.
    let exported = cli.ok(&["get", "policies", "-o", "yaml"]);
    let same = cli.run_with(&["diff", "-f", "-"], &exported);
    assert_eq!((same.code, same.out.as_str()), (0, ""), "{same:?}\n{exported}");

    what_cannot_be_is_refused(&cli);
    a_policy_adopts_new_ones(&cli, &policy);
    on_its_pages(&service).await;

    refused(&cli.run(&["delete", "policy", "exports"]), &["exports-slow"]);
    for id in ["exports-slow", "exports", "imports", "adopted", "site"] {
        cli.ok(&["delete", "policy", id]);
    }
    assert_eq!(cli.ok(&["get", "policies", "-o", "name"]), "policy/alone\n");
    service.stop().await;
}

fn what_cannot_be_is_refused(cli: &Cli) {
    let one = |id: &str, rest: &str| format!("kind: Policy\nid: {id}\n{rest}\n");
    refused(&cli.apply(&one("more", "parent: site\nfloor: 71")), &["floor", "70"]);
    refused(&cli.apply(&one("more", "parent: nobody\nmaxInFlight: 1")), &["parent", "nobody"]);
    refused(&cli.apply(&one("more", "parent: \"\"\nfloor: 3\nmaxInFlight: 5")), &["floor"]);
    refused(&cli.apply(&one("more", "maxInFlight: 5\nadopts: true")), &["adopts", "site"]);
    refused(&cli.apply(&one("site", "maxInFlight: 29\nadopts: true")), &["maxInFlight", "30"]);
    refused(&cli.apply(&one("site", "maxInFlight: 100\nadopts: true\nparent: exports-slow")), &["parent"]);
    let chain = one("fourth", "parent: exports-slow") + "---\n" + &one("fifth", "parent: fourth");
    refused(&cli.apply(&chain), &["fifth", "4 levels"]);
    // Not while it may start something.
    refused(&cli.apply(&one("exports-slow", "maxInFlight: 4\nparent: imports")), &["pause it first"]);
}

fn a_policy_adopts_new_ones(cli: &Cli, policy: &dyn Fn(&str) -> Value) {
    let yaml = "policies:\n- {id: adopted, maxInFlight: 3}\n- {id: alone, maxInFlight: 3, parent: \"\"}\n";
    let applied = cli.apply(yaml);
    assert_eq!(applied.code, 0, "{applied:?}");
    assert_eq!(policy("adopted")["parent"], ROOT);
    assert!(policy("alone").get("parent").is_none_or(|parent| parent == ""), "{}", policy("alone"));
    let again = cli.apply(yaml);
    assert!(again.out.ends_with("0 created, 0 updated, 2 unchanged\n"), "{again:?}");
}

async fn on_its_pages(service: &Service) {
    let browser = Browser::new(service);
    let page = wait_for("the bars of a tree", 20, async || {
        let page = browser.page("/n/default/policies/imports").await;
        page.text.contains("Its tree").then_some(page)
    })
    .await;
    page.shows(&["id=\"t-exports-slow\" class=\"in-2\"", "class=\"floor\"", "30 tokens of site"]);
    let list = browser.page("/n/default/policies").await;
    list.shows(&["<tr class=\"in-1\"", "<tr class=\"in-2\""]);
    let edit = browser.page("/n/default/policies/imports/edit").await;
    edit.shows(&["Its place in a tree", "name=\"parent\"", "value=\"site\"", "name=\"floor\""]);
    let etag =
        edit.text.split("name=\"etag\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let fields = |floor| [("action", "save"), ("etag", etag.as_str()), ("parent", "site"), ("floor", floor)];
    let saved = browser.post("/n/default/policies/imports/edit", &fields("40")).await;
    assert_eq!(saved.goes_to(), "/n/default/policies/imports");
    browser.page("/n/default/policies/imports").await.shows(&["40 tokens of site"]);
    // Nothing in the field means no parent, which a policy that may start something cannot be given.
    let fields = [
        ("action", "save"),
        ("parent", ""),
        ("max_in_flight", "3"),
        ("confirmed", "yes"),
        ("reason", "a test"),
    ];
    browser.post("/n/default/policies/imports/edit", &fields).await.shows(&["pause it first"]);
}

on_both_stores!(a_tree_is_applied_shown_and_deleted);
