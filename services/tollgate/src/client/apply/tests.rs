//! Files that are applied, and what is told of those that cannot be.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::Write;

use super::*;

fn parse(text: &str) -> (Vec<FileEntry>, Vec<String>) {
    let (mut entries, mut wrong) = (Vec::new(), Vec::new());
    tollgate_files::parse(&"batch.yaml".into(), text, "default", &mut entries, &mut wrong);
    (entries, wrong)
}

const GOOD: &str = "\
# A batch.
kind: Schedule
id: nightly
timeZone: Europe/Berlin
triggers:
  - cron: 30 2 * * *
  - interval: {every: 15m}
events: 1000
policy: imports
catchUp: {mode: LATEST}
target:
  http: {url: 'http://127.0.0.1:9000/'}
  release: explicit
payload: {on: no, count: 3}
---
kind: Policy
name: namespaces/team/policies/imports
max_in_flight: 4
token_ttl: 15m
";

#[test]
fn a_file_with_errors_sends_nothing_and_policies_come_first() {
    let mut good = tempfile::NamedTempFile::new().unwrap();
    good.write_all(GOOD.as_bytes()).unwrap();
    let mut bad = tempfile::NamedTempFile::new().unwrap();
    let text = "kind: Policy\nid: p\nburst: x\nmaxInFlight: 1\n---\nkind: Policy\nid: p\nmaxInFlight: 1\n---\n\
                kind: Policy\nid: p\nratePerSecond: 0\n";
    bad.write_all(text.as_bytes()).unwrap();
    let path = |file: &tempfile::NamedTempFile| file.path().to_str().unwrap().to_owned();
    let entries = read_files(&[path(&good)], "default").unwrap();
    assert!(matches!(entries[0].resource, Resource::Policy(_)));
    assert!(matches!(entries[1].resource, Resource::Schedule(_)));
    let error = read_files(&[path(&good), path(&bad)], "default").unwrap_err().to_string();
    assert!(error.contains("nothing was sent, because 3 things are wrong:"), "{error}");
    assert!(error.contains(&format!("{}:3: burst: ", path(&bad))), "{error}");
    let twice = format!("{0}:10: namespaces/default/policies/p is given twice, first at {0}:6", path(&bad));
    assert!(error.contains(&twice), "{error}");
    // What the service would refuse is said at once, too, in the spelling of the file.
    assert!(error.contains(&format!("{}:12: ratePerSecond: \"0\" is not allowed", path(&bad))), "{error}");
    assert!(
        read_files(&["/nowhere.yaml".to_owned()], "default")
            .unwrap_err()
            .to_string()
            .contains("/nowhere.yaml")
    );
}

#[test]
fn refusals_name_place_resource_and_field() {
    let (entries, _) = parse(GOOD);
    let locations =
        entries.iter().map(|entry| (entry.location.to_string(), entry.location.clone())).collect();
    let answer = v1::ApplyResourcesResponse {
        created_count: 1,
        failed_count: 1,
        errors: vec![v1::ApplyError {
            source: "batch.yaml:2".to_owned(),
            name: "nightly".to_owned(),
            field: "schedule.target.http.url".to_owned(),
            message: "expected a URL".to_owned(),
        }],
        ..Default::default()
    };
    assert_eq!(summary(&answer, false), "1 created, 0 updated, 0 unchanged, 1 refused\n");
    let text = refused(&answer, &locations).to_string();
    assert!(text.ends_with("\n  batch.yaml:12: nightly: target.http.url: expected a URL"), "{text}");
}

#[test]
fn refusals_of_a_whole_stream_are_found_on_their_lines() {
    let (entries, _) = parse(GOOD);
    let locations =
        entries.iter().map(|entry| (entry.location.to_string(), entry.location.clone())).collect();
    let status = tollgate_proto::field::invalid_argument(&[
        tollgate_proto::FieldError::new("batch.yaml:2: nightly: schedule.events", 0, "more"),
        tollgate_proto::FieldError::new("namespace", "", "a name"),
    ]);
    let text = refused_whole(&status, &locations).unwrap().to_string();
    let expected = "nothing was changed, because 2 things are refused:\n  \
                    batch.yaml:8: nightly: events: \"0\" is not allowed, expected more\n  \
                    namespace: expected a name";
    assert_eq!(text, expected);
    assert!(refused_whole(&Status::unavailable("gone"), &locations).is_none());
}
