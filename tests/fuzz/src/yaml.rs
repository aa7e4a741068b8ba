//! The YAML reader of `apply -f`, on any text.

use std::sync::Arc;

use serde_json::Value;
use tollgate_files::{Resource, given_twice, parse};
use tollgate_proto::json::{from_json, to_json};
use tollgate_proto::v1;

use super::quick;

/// The resources of a file, and what is wrong with it.
fn read(file: &Arc<str>, text: &str) -> (Vec<Resource>, Vec<String>) {
    let (mut entries, mut wrong) = (Vec::new(), Vec::new());
    parse(file, text, "default", &mut entries, &mut wrong);
    wrong.extend(given_twice(&entries));
    (entries.into_iter().map(|entry| entry.resource).collect(), wrong)
}

pub(crate) fn target(data: &[u8]) {
    let file: Arc<str> = "fuzz.yaml".into();
    let text = String::from_utf8_lossy(data);
    let (resources, wrong) = quick("reading a file", || read(&file, &text));
    // To YAML, a carriage return by itself ends a line, too.
    let lines = text.split(['\n', '\r']).count();
    for line in &wrong {
        let rest = line.strip_prefix("fuzz.yaml:");
        let at = rest.and_then(|rest| rest.split(':').next()).and_then(|at| at.parse::<usize>().ok());
        assert!(at.is_some_and(|at| (1..=lines).contains(&at)), "no place: {line}");
    }
    for resource in &resources {
        same_again(&file, resource);
    }
}

/// A resource written as JSON, which is YAML too, is read as the same.
fn same_again(file: &Arc<str>, resource: &Resource) {
    let (word, mut json, name) = match resource {
        Resource::Policy(policy) => ("Policy", to_json(policy), &policy.name),
        Resource::Schedule(schedule) => ("Schedule", to_json(schedule), &schedule.name),
        Resource::Calendar(calendar) => ("Calendar", to_json(calendar), &calendar.name),
        Resource::Alert(alert) => ("Alert", to_json(alert), &alert.name),
    };
    match resource {
        Resource::Policy(policy) => assert_eq!(from_json::<v1::Policy>(json.clone()).as_ref(), Ok(policy)),
        Resource::Schedule(schedule) => {
            assert_eq!(from_json::<v1::Schedule>(json.clone()).as_ref(), Ok(schedule));
        }
        Resource::Calendar(calendar) => {
            assert_eq!(from_json::<v1::Calendar>(json.clone()).as_ref(), Ok(calendar));
        }
        Resource::Alert(alert) => assert_eq!(from_json::<v1::Alert>(json.clone()).as_ref(), Ok(alert)),
    }
    json["kind"] = Value::from(word);
    let (again, wrong) = read(file, &json.to_string());
    assert!(wrong.is_empty(), "{name}: {wrong:?}: {json}");
    match (again.as_slice(), resource) {
        ([Resource::Policy(again)], Resource::Policy(first)) => assert_eq!(again, first),
        ([Resource::Schedule(again)], Resource::Schedule(first)) => assert_eq!(again, first),
        ([Resource::Calendar(again)], Resource::Calendar(first)) => assert_eq!(again, first),
        ([Resource::Alert(again)], Resource::Alert(first)) => assert_eq!(again, first),
        other => panic!("{name} became another kind: {other:?}"),
    }
}
