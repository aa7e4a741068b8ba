//! Which lists a schedule may have, and what callers see of them.
#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};
use tollgate_core::model::{ItemsFrom, ListFormat, RunState, Schedule};
use tollgate_proto::convert::{self, Name, schedule};
use tollgate_proto::json::{from_json, to_json};
use tollgate_proto::{FieldError, v1};

const URL: &str = "https://l.example/list";

fn message(with: &Value) -> v1::Schedule {
    let mut value = json!({"target": {"http": {"url": "https://example.com/hook"}}});
    for (key, member) in with.as_object().unwrap() {
        value[key] = member.clone();
    }
    from_json(value).unwrap()
}

fn taken(with: &Value, stored: Option<&Schedule>) -> Result<Schedule, Vec<FieldError>> {
    let name = Name { namespace: "a".to_owned(), id: "b".to_owned() };
    schedule::to_core(&message(with), &name, stored)
}

fn refused(with: &Value, stored: Option<&Schedule>) -> Vec<(String, String)> {
    let errors = taken(with, stored).unwrap_err();
    errors.into_iter().map(|error| (error.field, error.expected)).collect()
}

fn list(with: &Value) -> Value {
    let mut http = json!({ "url": URL });
    for (key, member) in with.as_object().unwrap() {
        http[key] = member.clone();
    }
    json!({"items_from": {"http": http}})
}

#[test]
fn a_list_takes_the_place_of_events() {
    let schedule = taken(&list(&json!({"format": "csv", "key_field": "id"})), None).unwrap();
    let from = schedule.payload.from.clone().unwrap();
    assert_eq!((schedule.events, RunState::first(&schedule)), (0, RunState::Listing));
    assert_eq!((from.http.format, from.http.key_field.as_str()), (Some(ListFormat::Csv), "id"));
    assert_eq!((from.fetch_ahead_s, from.give_up_after_s, from.http.deadline_ms), (300, 900, 30_000));
    let shown = to_json(&schedule::to_message(&schedule));
    assert_eq!((shown.get("events"), &shown["items_from"]["http"]["url"]), (None, &json!(URL)));
    let again = taken(&json!({"items_from": shown["items_from"]}), Some(&schedule)).unwrap();
    assert_eq!(again.payload, schedule.payload);
}

#[test]
fn what_is_wrong_with_a_list_names_the_field() {
    let field = |with: &Value| {
        let told = refused(with, None);
        assert_eq!(told.len(), 1, "{told:?}");
        told.into_iter().next().unwrap()
    };
    let mut both = list(&json!({}));
    both["events"] = json!(7);
    assert_eq!(field(&both).0, "schedule.events");
    let mut both = list(&json!({}));
    both["items"] = json!([{"data": 1}]);
    assert_eq!(field(&both).0, "schedule.items_from");
    for (with, name) in [
        (json!({"url": "ftp://a/"}), "url"),
        (json!({"url": "http://u:p@a/"}), "url"),
        (json!({"headers": {"Host": "x"}}), "headers"),
        (json!({"next_field": "next"}), "next_field"),
        (json!({"items_field": "rows", "next_parameter": "cursor"}), "next_parameter"),
        (json!({"items_field": "rows", "format": "NDJSON"}), "items_field"),
        (json!({"key_field": "k".repeat(129)}), "key_field"),
        (json!({"deadline": "0s"}), "deadline"),
    ] {
        assert_eq!(field(&list(&with)).0, format!("schedule.items_from.http.{name}"), "{with}");
    }
    assert_eq!(field(&json!({"items_from": {}})).0, "schedule.items_from");
    for (name, value) in [("fetch_ahead", "3601s"), ("give_up_after", "0s")] {
        let mut with = list(&json!({}));
        with["items_from"][name] = json!(value);
        assert_eq!(field(&with).0, format!("schedule.items_from.{name}"));
    }
}

#[test]
fn what_headers_say_is_kept_and_goes_nowhere_else() {
    let headers = json!({"headers": {"authorization": "Bearer veiled", "x-team": "a"}});
    let stored = taken(&list(&headers), None).unwrap();
    let shown = schedule::to_message(&stored).items_from.unwrap();
    let shown = to_json(&shown);
    assert_eq!(shown["http"]["headers"], json!({"authorization": "***", "x-team": "a"}));
    let kept = taken(&json!({ "items_from": shown }), Some(&stored)).unwrap();
    assert_eq!(kept.payload.from, stored.payload.from);
    let mut elsewhere = shown.clone();
    elsewhere["http"]["url"] = json!("https://other.example/list");
    let told = refused(&json!({ "items_from": elsewhere }), Some(&stored));
    assert_eq!(told[0].0, "schedule.items_from.http.headers.authorization");
    assert!(told[0].1.starts_with("the value itself, because the list has another scheme"), "{told:?}");
    let given: v1::Schedule = message(&json!({ "items_from": elsewhere }));
    let from: &ItemsFrom = stored.payload.from.as_ref().unwrap();
    assert!(convert::is_list_elsewhere(from, &given.items_from.unwrap()));
}
