//! Tables of the documents against the code that they tell of.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_auth::{Needs, Scope, TABLE};
use tollgate_harness::Cli;

use super::{all, quoted, read, root, rows, section};

/// `docs/bounds.md` names a test for whatever is shared, and each of them is there.
#[test]
fn every_bound_has_its_test() {
    let text = read("docs/bounds.md");
    let rows = rows(&text.lines().collect::<Vec<_>>());
    assert!(rows.len() >= 10, "{rows:?}");
    for row in rows {
        let [shared, _, bound, tests] = row.as_slice() else { panic!("four cells: {row:?}") };
        assert!(!bound.is_empty(), "{shared}: nothing bounds it");
        let mut count = 0;
        for (file, name) in quoted(tests).filter_map(|quoted| quoted.split_once("::")) {
            let source = std::fs::read_to_string(root().join(file)).unwrap_or_default();
            assert!(source.contains(&format!("fn {name}(")), "{shared}: {file} has no {name}");
            count += 1;
        }
        assert!(count > 0, "{shared}: no test overfills it");
    }
}

/// `docs/systems.md` names a test in which each thing that other systems do was seen to work, and each of them is there.
#[test]
fn what_other_systems_do_was_seen() {
    let text = read("docs/systems.md");
    let rows = rows(&text.lines().collect::<Vec<_>>());
    assert!(rows.len() >= 30, "{rows:?}");
    for row in rows {
        let [theirs, _, seen_by] = row.as_slice() else { panic!("three cells: {row:?}") };
        let tests: Vec<_> = quoted(seen_by).collect();
        assert!(!tests.is_empty(), "{theirs}: no test has seen it");
        for test in tests {
            let (file, name) = test.split_once("::").unwrap_or((test, ""));
            let source = std::fs::read_to_string(root().join(file)).unwrap_or_default();
            assert!(source.contains(&format!("fn {name}(")), "{theirs}: {test} is not there");
        }
    }
}

/// `docs/architecture.md` names what holds each invariant: a test, a trait or a type, or a file of lints,
/// and each of them is there.
#[test]
fn every_invariant_is_held() {
    let text = read("docs/architecture.md");
    let rows = rows(&section(&text, "## Invariants, as absences"));
    assert!(rows.len() >= 5, "{rows:?}");
    for row in rows {
        let [invariant, held_by] = row.as_slice() else { panic!("two cells: {row:?}") };
        let mut count = 0;
        for holder in quoted(held_by) {
            let (file, name) = holder.split_once("::").unwrap_or((holder, ""));
            let source = std::fs::read_to_string(root().join(file)).unwrap_or_default();
            let is_there = match name {
                "" => file.ends_with(".clippy.toml") && source.contains("disallowed-methods"),
                _ => [format!("fn {name}("), format!("pub trait {name}"), format!("pub struct {name} ")]
                    .iter()
                    .any(|item| source.contains(item)),
            };
            assert!(is_there, "{invariant}: {holder} is not there");
            count += 1;
        }
        assert!(count > 0, "{invariant}: nothing holds it");
    }
}

/// The table of settings is what `tollgate config -o markdown` prints, line by line.
#[test]
fn the_settings_are_those_of_the_binary() {
    let text = read("docs/configuration.md");
    let told: Vec<&str> =
        section(&text, "## Settings").into_iter().filter(|line| line.starts_with('|')).collect();
    let printed = Cli::new("http://127.0.0.1:9").ok(&["config", "-o", "markdown"]);
    assert_eq!(told, printed.lines().collect::<Vec<_>>());
    assert!(told.len() > 30, "{told:?}");
}

fn needed(needs: Needs) -> String {
    match needs {
        Needs::Nothing => "nothing".to_owned(),
        Needs::Peer => "the installation's own credential".to_owned(),
        Needs::Token => "an event's token, or `token:release`".to_owned(),
        Needs::Key(scope) => format!("`{scope}`"),
        Needs::Everywhere(scope) => format!("`{scope}`, for all namespaces"),
    }
}

/// The tables of scopes, and of what each call needs, are those by which the door decides.
#[test]
fn the_scopes_are_those_of_the_door() {
    let text = read("docs/security.md");
    let scopes = rows(&section(&text, "### Scopes"));
    let told: Vec<&str> = scopes.iter().filter_map(|row| quoted(&row[0]).next()).collect();
    assert_eq!(told, Scope::ALL.map(Scope::word));

    let mut told = BTreeMap::<String, BTreeSet<String>>::new();
    for row in rows(&section(&text, "### What each call needs")) {
        let calls: Vec<&str> = quoted(&row[1]).collect();
        let distinct: BTreeSet<String> = calls.iter().map(|call| (*call).to_owned()).collect();
        assert_eq!(distinct.len(), calls.len(), "a call stands there twice: {row:?}");
        assert!(told.insert(row[0].clone(), distinct).is_none(), "{row:?}");
    }
    let mut decided = BTreeMap::<String, BTreeSet<String>>::new();
    for (service, method, needs) in TABLE {
        let service = service.rsplit('.').next().unwrap();
        decided.entry(needed(*needs)).or_default().insert(format!("{service}.{method}"));
    }
    assert_eq!(told, decided);
}

/// A path of an annotation in the words of the chapter: `{name=namespaces/*/runs/*}` is
/// `namespaces/{namespace}/runs/{run}`, and a bare `{name}` is named by what stands before it.
fn spelled(template: &str) -> String {
    let mut inside = false;
    // Of a field with a pattern only the pattern is left.
    let mut flat = String::new();
    for part in template.split_inclusive(['{', '}']) {
        match part.strip_suffix('}') {
            Some(field) if inside => flat.push_str(field.split_once('=').map_or("*", |(_, pattern)| pattern)),
            _ => flat.push_str(part.trim_end_matches('{')),
        }
        inside = part.ends_with('{');
    }
    let mut before = String::new();
    let words = flat.split('/').map(|word| {
        let variable = match before.as_str() {
            "policies" => "policy".to_owned(),
            collection => collection.trim_end_matches('s').to_owned(),
        };
        before = word.to_owned();
        word.replace('*', &format!("{{{variable}}}"))
    });
    words.collect::<Vec<_>>().join("/")
}

/// The REST table has each binding of the protos' annotations, and no other.
#[test]
fn the_paths_are_those_of_the_annotations() {
    let pool = tollgate_proto::descriptor_pool();
    let annotation = pool.get_extension_by_name("google.api.http").unwrap();
    let mut bound = BTreeSet::new();
    for method in pool.services().flat_map(|service| service.methods().collect::<Vec<_>>()) {
        let options = method.options();
        if !options.has_extension(&annotation) {
            continue;
        }
        let value = options.get_extension(&annotation);
        let rule = value.as_message().unwrap();
        let more = rule.get_field_by_name("additional_bindings").unwrap();
        let more = more.as_list().unwrap().iter().filter_map(|value| value.as_message());
        for rule in std::iter::once(rule).chain(more) {
            for verb in ["get", "post", "patch", "delete", "put"] {
                let template = rule.get_field_by_name(verb).unwrap();
                let template = template.as_str().unwrap();
                if !template.is_empty() {
                    let path = format!("{} {}", verb.to_uppercase(), spelled(template));
                    bound.insert((method.name().to_owned(), path));
                }
            }
        }
    }
    assert!(bound.len() > 35, "{bound:?}");
    let text = read("docs/api.md");
    let mut told = BTreeSet::new();
    for row in rows(&section(&text, "### Paths")) {
        let call = quoted(&row[0]).next().unwrap().to_owned();
        for path in quoted(&row[1]) {
            assert!(told.insert((call.clone(), path.to_owned())), "{call} {path} stands there twice");
        }
    }
    assert_eq!(told, bound);
}

/// The services' table names every call that has no path as a stream.
#[test]
fn the_services_are_those_of_the_protos() {
    let text = read("docs/api.md");
    let told: BTreeSet<String> = rows(&section(&text, "## Services"))
        .iter()
        .map(|row| quoted(&row[0]).next().unwrap().to_owned())
        .collect();
    let pool = tollgate_proto::descriptor_pool();
    let services = pool.services().map(|service| service.name().to_owned());
    // What processes of one installation ask each other is nobody else's.
    assert_eq!(told, services.filter(|name| name != "HandlerPeerService").collect());
}

/// The map names every package of the workspace, and only folders that are there.
#[test]
fn the_map_has_every_folder() {
    let text = read("docs/architecture.md");
    let map = rows(&section(&text, "## The map"));
    let told: Vec<&str> = map.iter().flat_map(|row| quoted(&row[0])).collect();
    for folder in &told {
        assert!(root().join(folder).is_dir(), "there is no folder {folder}");
    }
    let manifest = read("Cargo.toml");
    let (_, members) = manifest.split_once("members = [").unwrap();
    let members = members.split(']').next().unwrap();
    let mut packages = BTreeSet::new();
    for member in members.split('"').skip(1).step_by(2) {
        match member.strip_suffix("/*") {
            None => drop(packages.insert(member.to_owned())),
            Some(folder) => {
                for entry in std::fs::read_dir(root().join(folder)).unwrap() {
                    let name = entry.unwrap().file_name().into_string().unwrap();
                    packages.insert(format!("{folder}/{name}"));
                }
            }
        }
    }
    assert!(packages.len() > 15, "{packages:?}");
    let is_package = |folder: &&str| root().join(folder).join("Cargo.toml").exists();
    let named: BTreeSet<String> = told.iter().copied().filter(is_package).map(str::to_owned).collect();
    assert_eq!(named, packages);
}

/// Metrics that any document names stand in the chapter of metrics, which is held to `/metrics`.
#[test]
fn metrics_of_documents_are_there() {
    let chapter = read("docs/metrics.md");
    let known: BTreeSet<&str> =
        chapter.lines().flat_map(quoted).map(|name| name.split('{').next().unwrap()).collect();
    let mut count = 0;
    for (path, text) in all().into_iter().filter(|(path, _)| path != "docs/metrics.md") {
        for name in text.lines().flat_map(quoted).filter(|name| name.starts_with("tollgate_")) {
            let name = name.split('{').next().unwrap();
            assert!(known.contains(name), "{path}: there is no {name}");
            count += 1;
        }
    }
    assert!(count > 5, "{count}");
}

/// Whoever is woken by an alert finds it in the chapter for operators, and no other.
#[test]
fn every_alert_is_explained() {
    let rules = read("docker/prometheus/alerts.yml");
    let alerts = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let text = read("docs/operating.md");
    let told = rows(&section(&text, "## At three in the morning"));
    let told: BTreeSet<&str> = told.iter().flat_map(|row| quoted(&row[0])).collect();
    assert_eq!(told, alerts.collect());
}
