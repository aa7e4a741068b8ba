//! Fields of a schedule that follow from others of it, and stay so on the way there and back.
#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};
use tollgate_proto::convert::{Name, schedule};
use tollgate_proto::json::from_json;
use tollgate_proto::v1;

fn name() -> Name {
    Name { namespace: "a".to_owned(), id: "b".to_owned() }
}

/// A valid schedule with these members.
fn given(with: Value) -> v1::Schedule {
    let mut value = json!({"target": {"http": {"url": "https://example.com/hook"}}});
    value.as_object_mut().unwrap().extend(with.as_object().unwrap().clone());
    from_json(value).unwrap()
}

#[test]
fn a_share_of_the_interval_is_a_time_and_stays_a_share() {
    let triggers = json!([{"interval": {"every": "15m"}}]);
    let given = given(json!({"triggers": triggers, "start_within_percent": 50}));
    let taken = schedule::to_core(&given, &name(), None).unwrap();
    assert_eq!((taken.start_within_s, taken.start_within_percent), (Some(450), Some(50)));
    let shown = schedule::to_message(&taken);
    assert_eq!((shown.start_within, shown.start_within_percent), (None, Some(50)));
    assert_eq!(schedule::to_core(&shown, &name(), None).unwrap(), taken);
    assert_eq!(schedule::starts_to_core(&shown).unwrap().1.start_within_s, Some(450));
}

#[test]
fn a_key_follows_its_label() {
    let given = given(json!({"key_label": "tenant", "labels": {"tenant": "acme", "team": "x"}}));
    let taken = schedule::to_core(&given, &name(), None).unwrap();
    assert_eq!(taken.key.as_deref(), Some("acme"));
    let mut shown = schedule::to_message(&taken);
    assert_eq!((shown.key.as_str(), shown.key_label.as_str()), ("", "tenant"));
    assert_eq!(schedule::to_core(&shown, &name(), None).unwrap(), taken);
    shown.labels.insert("tenant".to_owned(), "zeta".to_owned());
    assert_eq!(schedule::to_core(&shown, &name(), None).unwrap().key.as_deref(), Some("zeta"));
}

#[test]
fn what_does_not_fit_together_is_refused_by_its_field() {
    let every = |interval: &str| json!([{"interval": {"every": interval}}]);
    let long = "x".repeat(129);
    for (with, field) in [
        (json!({"triggers": [{"cron": "@daily"}], "start_within_percent": 10}), "start_within_percent"),
        (json!({"triggers": every("1h"), "start_within_percent": 0}), "start_within_percent"),
        (json!({"triggers": every("1h"), "start_within_percent": 101}), "start_within_percent"),
        (json!({"triggers": every("72h"), "start_within_percent": 50}), "start_within_percent"),
        (
            json!({"triggers": every("1h"), "start_within_percent": 5, "start_within": "5s"}),
            "start_within_percent",
        ),
        (json!({"delay_after_finish": "5m"}), "delay_after_finish"),
        (json!({"delay_after_finish": "5m", "overlap": "OVERLAP_CANCEL_OTHER"}), "delay_after_finish"),
        (json!({"delay_after_finish": "1.5s", "overlap": "OVERLAP_SKIP"}), "delay_after_finish"),
        (json!({"on_finish": {}}), "on_finish.schedule"),
        (json!({"on_finish": {"schedule": "b"}}), "on_finish.schedule"),
        (json!({"on_finish": {"schedule": "namespaces/other/schedules/c"}}), "on_finish.schedule"),
        (json!({"on_finish": {"schedule": "c", "events": 0}}), "on_finish.events"),
        (json!({"on_finish": {"schedule": "c", "events": 10_000_001}}), "on_finish.events"),
        (json!({"on_finish": {"schedule": "c", "events": 1, "items_from_results": {}}}), "on_finish.events"),
        (
            json!({"on_finish": {"schedule": "c", "items_from_results": {"units_field": long}}}),
            "on_finish.items_from_results.units_field",
        ),
        (json!({"key_label": "tenant"}), "key_label"),
        (json!({"key_label": "tenant", "key": "a", "labels": {"tenant": "b"}}), "key_label"),
        (json!({"key_label": "tenant", "labels": {"tenant": long}}), "key_label"),
    ] {
        let errors = schedule::to_core(&given(with.clone()), &name(), None).unwrap_err();
        let named: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(named, [format!("schedule.{field}")], "{with}");
    }
}
