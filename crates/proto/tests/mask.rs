//! Updates of some fields, and what differs.
#![expect(clippy::unwrap_used, reason = "tests")]

use prost_types::FieldMask;
use serde_json::{Value, json};
use tollgate_proto::json::{from_json, to_json};
use tollgate_proto::mask::{apply_mask, difference};
use tollgate_proto::v1;

fn current() -> Value {
    json!({
        "name": "namespaces/a/schedules/b",
        "triggers": [{"cron": "@daily"}],
        "events": 5,
        "target": {"http": {"url": "http://old/", "has_secret": true, "deadline": "30s"}},
        "labels": {"team": "x", "cost.centre": "1"},
        "finish_by": "60s",
        "payload": {"a": 1},
    })
}

fn applied(update: Value, paths: &[&str]) -> Result<Value, tollgate_proto::FieldError> {
    let [current, update]: [v1::Schedule; 2] = [current(), update].map(|value| from_json(value).unwrap());
    let mask = FieldMask { paths: paths.iter().map(|path| (*path).to_owned()).collect() };
    apply_mask(&current, &update, Some(&mask)).map(|schedule| to_json(&schedule))
}

/// `current` with the pointers set, or removed where null.
fn changed(changes: &[(&str, Value)]) -> Value {
    let mut value = current();
    for (pointer, to) in changes {
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        let parent = value.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        if to.is_null() {
            parent.remove(name);
        } else {
            parent.insert(name.to_owned(), to.clone());
        }
    }
    value
}

#[test]
fn a_mask_changes_what_it_names_and_nothing_else() {
    let update = json!({
        "events": 6,
        "finish_by": "2m",
        "target": {"http": {"url": "http://new/"}, "release": "EXPLICIT"},
        "labels": {"team": "y"},
        "triggers": [{"at": "2026-01-01T00:00:00Z"}],
        "payload": [2],
    });
    for (paths, expected) in [
        (vec!["events"], changed(&[("/events", json!(6))])),
        (vec!["target.http.url"], changed(&[("/target/http/url", json!("http://new/"))])),
        (vec!["target.http.has_secret"], changed(&[("/target/http/has_secret", Value::Null)])),
        (vec!["target.http"], changed(&[("/target/http", json!({"url": "http://new/"}))])),
        (vec!["labels.team"], changed(&[("/labels/team", json!("y"))])),
        (vec!["labels.cost.centre"], changed(&[("/labels/cost.centre", Value::Null)])),
        (vec!["labels"], changed(&[("/labels", json!({"team": "y"}))])),
        (vec!["payload"], changed(&[("/payload", json!([2]))])),
        (vec!["retry.max_attempts"], current()),
        (vec!["time_zone"], current()),
        (
            vec!["events", "finishBy", "triggers"],
            changed(&[
                ("/events", json!(6)),
                ("/finish_by", json!("120s")),
                ("/triggers", json!([{"at": "2026-01-01T00:00:00Z"}])),
            ]),
        ),
    ] {
        assert_eq!(applied(update.clone(), &paths).unwrap(), expected, "{paths:?}");
    }
}

#[test]
fn a_field_of_another_kind_of_target_replaces_the_target() {
    let update = json!({"target": {"sqs": {"queue_url": "http://q/1/2"}}});
    let expected = changed(&[("/target", json!({"sqs": {"queue_url": "http://q/1/2"}}))]);
    assert_eq!(applied(update, &["target.sqs.queue_url"]).unwrap(), expected);
}

#[test]
fn no_mask_and_a_star_replace_everything() {
    let update = json!({"events": 6});
    assert_eq!(applied(update.clone(), &[]).unwrap(), update);
    assert_eq!(applied(update.clone(), &["*"]).unwrap(), update);
    let [old, new]: [v1::Schedule; 2] = [current(), update].map(|value| from_json(value).unwrap());
    assert_eq!(apply_mask(&old, &new, None).unwrap(), new);
}

#[test]
fn unknown_paths_are_refused() {
    for path in [
        "colour",
        "",
        "target.ftp",
        "target.http.url.x",
        "triggers.cron",
        "payload.a",
        "events.",
        "events,labels",
        "*.x",
    ] {
        let error = applied(json!({"events": 6}), &["labels", path]).unwrap_err();
        assert_eq!((error.field.as_str(), error.value.as_str()), ("update_mask", path), "{error}");
        assert!(!error.expected.is_empty());
    }
}

#[test]
fn a_difference_names_the_innermost_fields() {
    let old = json!({"a": 1, "b": {"c": [1], "d": 2}, "gone": {"x": 1}, "same": {"y": [1]}});
    let new = json!({"a": 1, "b": {"c": [1, 2], "e": 3}, "same": {"y": [1]}});
    assert_eq!(
        difference(&old, &new),
        json!({
            "b.c": {"old": [1], "new": [1, 2]},
            "b.d": {"old": 2},
            "b.e": {"new": 3},
            "gone": {"old": {"x": 1}},
        })
    );
    assert_eq!(difference(&old, &old), json!({}));
}
