//! Which items a schedule may have, and how they go with its number of events.
#![expect(clippy::unwrap_used, reason = "tests")]

use prost::Message as _;
use serde_json::{Value, json};
use tollgate_core::model::Schedule;
use tollgate_proto::convert::{self, Name, schedule};
use tollgate_proto::json::from_json;
use tollgate_proto::{FieldError, v1};

fn taken(with: Value) -> Result<Schedule, Vec<FieldError>> {
    let mut value = json!({"target": {"http": {"url": "https://example.com/hook"}}});
    for (key, member) in with.as_object().unwrap() {
        value[key] = member.clone();
    }
    let name = Name { namespace: "a".to_owned(), id: "b".to_owned() };
    schedule::to_core(&from_json(value).unwrap(), &name, None)
}

fn refused(with: Value) -> Vec<(String, String)> {
    let errors = taken(with).unwrap_err();
    errors.into_iter().map(|error| (error.field, error.expected)).collect()
}

#[test]
fn there_are_as_many_events_as_items() {
    let items = json!([{"data": {"b": [1, "x\ty\nz"], "a": 2.5}, "key": "acme"}, {"data": null, "units": 7}, {"data": "7"}]);
    for events in [json!(null), json!(3)] {
        let schedule = taken(json!({"items": items, "events": events, "payload": {"p": 1}})).unwrap();
        assert_eq!((schedule.events, schedule.payload.json.as_str()), (3, r#"{"p":1}"#));
        let lines = "acme\t{\"a\":2.5,\"b\":[1,\"x\\ty\\nz\"]}\n\t7\tnull\n\t\"7\"\n";
        assert_eq!((&*schedule.payload.items, schedule.payload.units_max), (lines, 7));
    }
    let told = refused(json!({"items": items, "events": 5}));
    let expected = "none, or 3: with items there are as many events as items";
    assert_eq!(told, [("schedule.events".to_owned(), expected.to_owned())]);
    let message = from_json(json!({"items": items, "spread": "10s"})).unwrap();
    assert_eq!(schedule::starts_to_core(&message).unwrap().1.events, 3);
    let none = taken(json!({"items": [], "events": 5})).unwrap();
    assert_eq!((none.events, &*none.payload.items), (5, ""));
}

#[test]
fn what_is_wrong_with_an_item_names_it() {
    let long = "k".repeat(129);
    let told = refused(
        json!({"items": [{"data": 1}, {"key": "a"}, {"data": 1, "key": long}, {"data": 1, "key": "a\tb"},
            {"data": 1, "units": 1_001}], "units": 0}),
    );
    let fields: Vec<&str> = told.iter().map(|(field, _)| field.as_str()).collect();
    let items = ["[1].data", "[2].key", "[3].key", "[4].units"].map(|field| format!("schedule.items{field}"));
    assert_eq!((fields[0], &fields[1..]), ("schedule.units", &items.each_ref().map(String::as_str)[..]));
    assert_eq!(told[1].1, "a JSON value, which the event carries");
    assert_eq!(told[2].1, "at most 128 bytes, without control characters");
    assert_eq!(told[4].1, "0 to 1000 tokens; 0 for as many as the schedule says");
    assert_eq!(told[0].1, "1 to 1000");
    let many = json!(vec![json!({"data": 1}); 1_001]);
    let told = refused(json!({ "items": many }));
    assert!(
        told.len() == 1 && told[0].1.starts_with("at most 1,000; a longer list is submitted"),
        "{told:?}"
    );
    let item = |bytes: usize| json!({"data": "x".repeat(bytes)});
    let half = 128 * 1024;
    assert!(taken(json!({"items": [item(half - 4)], "payload": "x".repeat(half - 2)})).is_ok());
    let told = refused(json!({"items": [item(half - 3)], "payload": "x".repeat(half - 2)}));
    assert_eq!(told[0].0, "schedule.items");
    assert!(told[0].1.starts_with("at most 262144 bytes together with payload"), "{told:?}");
}

#[test]
fn a_payload_for_one_run_leaves_the_items() {
    let schedule = taken(json!({"items": [{"data": {"a": 1}}], "payload": {"p": 1}})).unwrap();
    let patch = convert::payload::from_json(&json!({"p": 2}));
    let merged = convert::payload::merged("payload", &schedule.payload, &patch).unwrap();
    assert_eq!((merged.json.as_str(), &merged.items), (r#"{"p":2}"#, &schedule.payload.items));
    let patch = convert::payload::from_json(&json!({"p": "x".repeat(256 * 1024 - 15)}));
    let told = convert::payload::merged("payload", &schedule.payload, &patch).unwrap_err();
    assert!(told.expected.contains("together with the schedule's items"), "{told:?}");
}

#[test]
fn the_deepest_item_is_read_from_the_wire() {
    let deep = (0..24).fold(json!(1), |inner, _| json!({ "a": inner }));
    let value = json!({"target": {"http": {"url": "https://example.com/"}}, "items": [{"data": deep}]});
    let resource = v1::apply_resources_request::Resource::Schedule(from_json(value.clone()).unwrap());
    let request =
        v1::ApplyResourcesRequest { resource: Some(resource), ..v1::ApplyResourcesRequest::default() };
    let read = v1::ApplyResourcesRequest::decode(request.encode_to_vec().as_slice()).unwrap();
    assert_eq!(read, request);
}
