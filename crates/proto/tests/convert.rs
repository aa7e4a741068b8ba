//! What callers may send: every refusal names its field, and what is accepted survives the way there and back.
#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};
use tollgate_core::model::{CatchUp, Schedule, Target, Trigger};
use tollgate_core::plan::Plan;
use tollgate_proto::convert::{self, Name, names, policy, schedule};
use tollgate_proto::json::{from_json, to_json};
use tollgate_proto::{FieldError, v1};

const SECRET: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz";

fn name() -> Name {
    Name { namespace: "a".to_owned(), id: "b".to_owned() }
}

/// A valid schedule with members of `with` set or, where null, removed.
fn given(with: &Value) -> v1::Schedule {
    let mut value = json!({
        "triggers": [{"cron": "@daily"}],
        "target": {"http": {"url": "https://example.com/hook"}},
    });
    for (key, member) in with.as_object().unwrap() {
        value[key] = member.clone();
    }
    from_json(value).unwrap()
}

fn refused(with: &Value) -> Vec<FieldError> {
    schedule::to_core(&given(with), &name(), None).unwrap_err()
}

fn fields(errors: &[FieldError]) -> Vec<&str> {
    errors.iter().map(|error| error.field.as_str()).collect()
}

fn http(with: Value) -> Value {
    let mut http = json!({"url": "https://example.com/"});
    for (key, member) in with.as_object().unwrap() {
        http[key] = member.clone();
    }
    json!({"target": {"http": http}})
}

#[test]
fn the_defaults_of_a_schedule() {
    let taken = schedule::to_core(&given(&json!({})), &name(), None).unwrap();
    assert_eq!((taken.events, taken.priority, taken.timing.time_zone.as_str()), (1, 5, "UTC"));
    assert_eq!(taken.catch_up, CatchUp::Latest);
    assert_eq!((taken.policy.clone(), taken.payload.json.as_str()), (None, ""));
    assert_eq!((taken.retry, taken.check_again), Default::default());
    let Target::Http { http, .. } = taken.target else { panic!("http") };
    assert_eq!((http.deadline_ms, http.secret), (30_000, None));
    let sqs = given(&json!({"target": {"sqs": {"queue_url": "https://sqs.eu-central-1.amazonaws.com/1/q"}}}));
    let Target::Sqs { sqs, .. } = schedule::to_core(&sqs, &name(), None).unwrap().target else {
        panic!("sqs")
    };
    assert_eq!((sqs.deadline_ms, sqs.region), (10_000, None));
}

#[test]
fn each_wrong_field_of_a_schedule_is_named() {
    let labels: serde_json::Map<String, Value> = (0..65).map(|at| (format!("l{at}"), json!("x"))).collect();
    are_named(&[
        (json!({"triggers": vec![json!({"cron": "@daily"}); 101]}), "triggers"),
        (json!({"triggers": [{"cron": "@daily"}, {}]}), "triggers[1]"),
        (json!({"triggers": [{"interval": {}}]}), "triggers[0].interval.every"),
        (json!({"triggers": [{"interval": {"every": "0s"}}]}), "triggers[0].interval.every"),
        (json!({"triggers": [{"interval": {"every": "1.5s"}}]}), "triggers[0].interval.every"),
        (json!({"triggers": [{"interval": {"every": "-5s"}}]}), "triggers[0].interval.every"),
        (
            json!({"triggers": [{"interval": {"every": "5s", "anchor": "2026-01-01T00:00:00.5Z"}}]}),
            "triggers[0].interval.anchor",
        ),
        (json!({"triggers": [{"at": "2026-01-01T00:00:00.001Z"}]}), "triggers[0].at"),
        (json!({"start_time": "2026-01-01T00:00:00.000000001Z"}), "start_time"),
        (json!({"start_time": "2026-01-02T00:00:00Z", "end_time": "2026-01-02T00:00:00Z"}), "end_time"),
        (json!({"events": 0}), "events"),
        (json!({"events": 10_000_001}), "events"),
        (json!({"priority": 10}), "priority"),
        (json!({"payload": "x".repeat(256 * 1024)}), "payload"),
        (json!({"policy": "Upper"}), "policy"),
        (json!({"policy": "namespaces/other/policies/p"}), "policy"),
        (json!({"policy": "namespaces/a/schedules/p"}), "policy"),
        (json!({"retry": {"max_attempts": 0}}), "retry.max_attempts"),
        (json!({"retry": {"min_backoff": "0s"}}), "retry.min_backoff"),
        (json!({"retry": {"max_backoff": "25h"}}), "retry.max_backoff"),
        (json!({"retry": {"min_backoff": "10s", "max_backoff": "5s"}}), "retry.max_backoff"),
        (json!({"catch_up": {"mode": "ALL"}}), "catch_up.horizon"),
        (json!({"catch_up": {"mode": "ALL", "horizon": "0s"}}), "catch_up.horizon"),
        (json!({"catch_up": {"mode": "NONE", "horizon": "1h"}}), "catch_up.horizon"),
        (json!({"finish_by": "500ms"}), "finish_by"),
        (json!({"spread": "0s"}), "spread"),
        (json!({"exclude": ["2026-12-25", "2026-02-29"]}), "exclude[1]"),
        (json!({"exclude": ["2026-12-25..2026-12-24"]}), "exclude[0]"),
        (json!({"exclude": vec!["2026-12-25"; 501]}), "exclude"),
        (json!({"start_within": "24h1s"}), "start_within"),
        (json!({"start_within": "1.5s"}), "start_within"),
        (json!({"check_again": {"max_checks": 1_000_001}}), "check_again.max_checks"),
        (json!({"check_again": {"horizon": "367d"}}), "check_again.horizon"),
        (json!({"check_again": {"slot": "0.1s"}}), "check_again.slot"),
        (json!({"labels": {"": "x"}}), "labels"),
        (json!({"labels": {"a b": "x"}}), "labels"),
        (json!({"labels": {"a": "x".repeat(256)}}), "labels.a"),
        (json!({"labels": labels}), "labels"),
        (json!({"description": "x".repeat(4097)}), "description"),
    ]);
}

#[test]
fn each_wrong_field_of_a_target_is_named() {
    are_named(&[
        (json!({"target": null}), "target"),
        (json!({"target": {}}), "target"),
        (http(json!({"url": ""})), "target.http.url"),
        (http(json!({"url": "ftp://example.com/"})), "target.http.url"),
        (http(json!({"url": "https:///path"})), "target.http.url"),
        (http(json!({"url": "/path"})), "target.http.url"),
        (http(json!({"url": "example.com"})), "target.http.url"),
        (http(json!({"url": "https://u:p@example.com/"})), "target.http.url"),
        (http(json!({"url": "https://example.com:0/"})), "target.http.url"),
        (http(json!({"url": "https://example.com:99999/"})), "target.http.url"),
        (http(json!({"url": "https://exa mple.com/"})), "target.http.url"),
        (http(json!({"url": "https://example.com/#a"})), "target.http.url"),
        (http(json!({"url": format!("https://example.com/{}", "x".repeat(2048))})), "target.http.url"),
        (http(json!({"headers": {"a b": "x"}})), "target.http.headers"),
        (http(json!({"headers": {"": "x"}})), "target.http.headers"),
        (http(json!({"headers": {"Content-Type": "x"}})), "target.http.headers"),
        (http(json!({"headers": {"Webhook-Id": "x"}})), "target.http.headers"),
        (http(json!({"headers": {"A": "x", "a": "y"}})), "target.http.headers"),
        (http(json!({"headers": {"a": "x\r\nb: y"}})), "target.http.headers.a"),
        (http(json!({"secret": "whsec_short"})), "target.http.secret"),
        (http(json!({"secret": "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI="})), "target.http.secret"),
        (http(json!({"secret": &SECRET[6..]})), "target.http.secret"),
        (http(json!({"has_secret": true})), "target.http.secret"),
        (http(json!({"deadline": "0s"})), "target.http.deadline"),
        (http(json!({"deadline": "15m 1ms"})), "target.http.deadline"),
        (http(json!({"deadline": "1500us"})), "target.http.deadline"),
        (json!({"target": {"sqs": {"queue_url": "q"}}}), "target.sqs.queue_url"),
        (json!({"target": {"sqs": {"queue_url": "https://sqs.example.com/"}}}), "target.sqs.queue_url"),
        (json!({"target": {"sqs": {"queue_url": "https://q/1", "region": "EU"}}}), "target.sqs.region"),
        (
            json!({"target": {"sqs": {"queue_url": "https://q/1", "endpoint_url": "x"}}}),
            "target.sqs.endpoint_url",
        ),
        (
            json!({"target": {"sqs": {"queue_url": "https://q/1", "message_group_id": "a b"}}}),
            "target.sqs.message_group_id",
        ),
        (json!({"target": {"sqs": {"queue_url": "https://q/1", "deadline": "1h"}}}), "target.sqs.deadline"),
    ]);
}

fn are_named(cases: &[(Value, &str)]) {
    for (with, field) in cases {
        let errors = refused(with);
        assert_eq!(fields(&errors), [format!("schedule.{field}")], "{with}");
        assert!(!errors[0].expected.is_empty());
        let text = errors[0].to_string();
        assert!(!text.contains("u:p") && !text.contains("MDEyMz") && !text.contains("b: y"), "{text}");
    }
}

#[test]
fn numbers_outside_their_enums_are_refused() {
    let mut message = given(&json!({"catch_up": {}}));
    (message.gap, message.repeat, message.overlap) = (9, 9, -1);
    message.catch_up.as_mut().unwrap().mode = 9;
    message.target.as_mut().unwrap().release = 9;
    let errors = schedule::to_core(&message, &name(), None).unwrap_err();
    let mut found = fields(&errors);
    found.sort_unstable();
    assert_eq!(
        found,
        [
            "schedule.catch_up.mode",
            "schedule.gap",
            "schedule.overlap",
            "schedule.repeat",
            "schedule.target.release"
        ]
    );
}

#[test]
fn all_refusals_come_at_once() {
    let errors = refused(&json!({"events": 0, "priority": 99, "target": {}, "spread": "0s"}));
    let mut found = fields(&errors);
    found.sort_unstable();
    assert_eq!(found, ["schedule.events", "schedule.priority", "schedule.spread", "schedule.target"]);
}

#[test]
fn a_secret_is_kept_replaced_or_removed_and_never_shown() {
    let with = |http: Value| given(&self::http(http));
    let convert = |message: &v1::Schedule, stored: Option<&Schedule>| {
        schedule::to_core(message, &name(), stored).unwrap()
    };
    let secret = |schedule: &Schedule| match &schedule.target {
        Target::Http { http, .. } => http.secret.clone(),
        Target::Sqs { .. } | Target::Kafka { .. } | Target::Pull { .. } => None,
    };
    let stored = convert(&with(json!({"secret": SECRET})), None);
    assert_eq!(secret(&stored).as_deref(), Some(SECRET));
    let shown = schedule::to_message(&stored);
    assert!(!format!("{shown:?}").contains("MDEyMz"));
    assert_eq!(secret(&convert(&shown, Some(&stored))).as_deref(), Some(SECRET));
    assert_eq!(secret(&convert(&with(json!({})), Some(&stored))), None);
    let other = "whsec_QUJDREVGR0hJSktMTU5PUFFSU1RVVldY";
    assert_eq!(secret(&convert(&with(json!({"secret": other})), Some(&stored))).as_deref(), Some(other));
}

#[test]
fn what_is_kept_goes_to_no_other_place() {
    let at = |url: &str| {
        let headers = json!({"X-Api-Key": "b", "X-Tenant": "c"});
        let http = json!({"url": url, "secret": SECRET, "headers": headers});
        schedule::to_core(&given(&json!({"target": {"http": http}})), &name(), None).unwrap()
    };
    let refused = |stored: &Schedule, url: &str| {
        let headers = json!({"X-Api-Key": "***", "X-Tenant": "***"});
        let http = json!({"url": url, "has_secret": true, "headers": headers});
        let again = schedule::to_core(&given(&json!({"target": {"http": http}})), &name(), Some(stored));
        let fields = again.map(|again| assert_eq!(target_parts(&again), target_parts(stored)));
        fields.err().unwrap_or_default().into_iter().map(|error| error.field).collect::<Vec<_>>()
    };
    let stored = at("http://a.example/x");
    for same in ["http://a.example/y?z", "http://a.example:80/x", "HTTP://A.Example/x"] {
        assert_eq!(refused(&stored, same), [""; 0], "{same}");
    }
    for other in [
        "https://a.example/x",
        "http://a.example:81/x",
        "http://b.example/x",
        "http://a.example./x",
        "http://a.example.b.example/x",
        "http://[::1]/x",
    ] {
        let fields = ["headers.X-Api-Key", "headers.X-Tenant", "secret"];
        assert_eq!(refused(&stored, other), fields.map(|field| format!("schedule.target.http.{field}")));
    }
    assert_eq!(refused(&at("https://a.example:443/x"), "https://a.example/x"), [""; 0]);
}

fn target_parts(schedule: &Schedule) -> (Option<String>, Vec<String>) {
    let Target::Http { http, .. } = &schedule.target else { panic!("not HTTP") };
    (http.secret.clone(), http.headers.values().cloned().collect())
}

#[test]
fn what_only_the_service_decides_comes_from_the_stored_schedule() {
    let mut stored = schedule::to_core(&given(&json!({"policy": "p"})), &name(), None).unwrap();
    stored.uid = uuid::Uuid::from_u128(7);
    stored.policy_uid = Some(uuid::Uuid::from_u128(8));
    (stored.generation, stored.created_us, stored.updated_us) = (3, 10, 20);
    let mut message = given(&json!({"policy": "namespaces/a/policies/p", "uid": "x", "etag": "9"}));
    message.pause = Some(v1::Pause::default());
    let taken = schedule::to_core(&message, &name(), Some(&stored)).unwrap();
    assert_eq!(taken, stored);
    message.policy = "q".to_owned();
    assert_eq!(schedule::to_core(&message, &name(), Some(&stored)).unwrap().policy_uid, None);
}

#[test]
fn each_wrong_field_of_a_policy_is_named() {
    for (value, field) in [
        (json!({}), "max_in_flight"),
        (json!({"burst": 5}), "burst"),
        (json!({"max_in_flight": 0}), "max_in_flight"),
        (json!({"rate_per_second": 0}), "rate_per_second"),
        (json!({"rate_per_second": -1}), "rate_per_second"),
        (json!({"rate_per_second": 1e9}), "rate_per_second"),
        (json!({"rate_per_second": 1, "burst": 0}), "burst"),
        (json!({"max_in_flight": 1, "burst": 1}), "burst"),
        (json!({"max_in_flight": 1, "token_ttl": "999ms"}), "token_ttl"),
        (json!({"max_in_flight": 1, "token_ttl": "31d"}), "token_ttl"),
        (json!({"max_in_flight": 1, "suspect_period": "-1s"}), "suspect_period"),
        (json!({"max_in_flight": 1, "unstarted_ttl": "0s"}), "unstarted_ttl"),
        (json!({"max_in_flight": 1, "labels": {"a=b": "x"}}), "labels"),
        (json!({"max_in_flight": 1, "description": "é".repeat(2049)}), "description"),
    ] {
        let message: v1::Policy = from_json(value.clone()).unwrap();
        let errors = policy::to_core(&message, &name(), None).unwrap_err();
        assert!(fields(&errors).contains(&format!("policy.{field}").as_str()), "{value}: {errors:?}");
        assert!(errors.len() <= 2, "{value}: {errors:?}");
    }
    let nan = v1::Policy { rate_per_second: Some(f64::NAN), reclaim: 7, ttl_from: 7, ..Default::default() };
    let errors = policy::to_core(&nan, &name(), None).unwrap_err();
    assert_eq!(fields(&errors), ["policy.reclaim", "policy.ttl_from", "policy.rate_per_second"]);
}

#[test]
fn spans_and_moments_that_no_message_should_hold_are_refused() {
    let mut message = given(&json!({}));
    message.finish_by = Some(prost_types::Duration { seconds: i64::MAX, nanos: 0 });
    message.spread = Some(prost_types::Duration { seconds: 1, nanos: -5 });
    message.start_time = Some(prost_types::Timestamp { seconds: i64::MAX, nanos: 0 });
    message.end_time = Some(prost_types::Timestamp { seconds: 0, nanos: -1_000 });
    let retry = v1::RetryPolicy {
        min_backoff: Some(prost_types::Duration { seconds: i64::MIN, nanos: i32::MIN }),
        ..Default::default()
    };
    message.retry = Some(retry);
    let errors = schedule::to_core(&message, &name(), None).unwrap_err();
    assert_eq!(errors.len(), 5, "{errors:?}");
}

#[test]
fn payloads_that_are_not_json_are_refused() {
    use prost_types::value::Kind;
    let value = |kind| prost_types::Value { kind };
    let list = |item| Kind::ListValue(prost_types::ListValue { values: vec![item] });
    let deep = (0..200).fold(value(Some(Kind::BoolValue(true))), |inner, _| value(Some(list(inner))));
    for (payload, field) in [
        (value(None), "schedule.payload"),
        (value(Some(Kind::NumberValue(f64::NAN))), "schedule.payload"),
        (value(Some(list(value(Some(Kind::NumberValue(f64::INFINITY)))))), "schedule.payload[0]"),
        (deep, "schedule.payload[0]"),
    ] {
        let message = v1::Schedule { payload: Some(payload), ..given(&json!({})) };
        let errors = schedule::to_core(&message, &name(), None).unwrap_err();
        assert!(errors.len() == 1 && errors[0].field.starts_with(field), "{errors:?}");
    }
    let taken =
        schedule::to_core(&given(&json!({"payload": {"n": 3, "f": 0.5, "big": 1e300}})), &name(), None);
    assert_eq!(taken.unwrap().payload.json, r#"{"big":1e+300,"f":0.5,"n":3}"#);
}

#[test]
fn names_are_read_strictly() {
    assert!(["a", "0", "a.b_c-d9", &"x".repeat(63)].into_iter().all(names::is_id));
    for id in ["", "A", "-a", "a-", ".a", "a_", "a b", "ä", "a/b", &"x".repeat(64)] {
        assert!(!names::is_id(id), "{id}");
    }
    assert_eq!(names::namespace("parent", "namespaces/a").unwrap(), "a");
    assert_eq!(names::schedule("name", "namespaces/a/schedules/b").unwrap(), name());
    for text in ["", "a", "namespaces/", "namespaces/A", "namespaces/a/b", "namespaces/a/schedules/b/c"] {
        assert_eq!(names::namespace("parent", text).unwrap_err().field, "parent", "{text}");
        assert!(names::schedule("name", text).is_err(), "{text}");
    }
    let run = "namespaces/a/runs/3f-0197d3a5b1c04e5f8a6b7c8d9e0f1a2b";
    let (namespace, shard, id) = names::run("name", run).unwrap();
    assert_eq!((namespace.as_str(), shard), ("a", 0x3f));
    assert_eq!(names::of_run("a", shard, id), run);
    // Shards that were added have a digit more from 256 on, and one run has one name.
    for shard in [255, 256, 1_023] {
        let name = names::of_run("a", shard, id);
        assert_eq!(names::run("name", &name), Ok(("a".to_owned(), shard, id)), "{name}");
        assert!(names::run("name", &name.replacen("runs/", "runs/0", 1)).is_err(), "{name}");
    }
    for text in [
        run.replace("3f", "3F"),
        run.replace("3f-", "03f-"),
        run.replace("3f-", "+f-"),
        run.replace("2b", "2"),
        format!("{run}0"),
        run.replace("runs", "events"),
    ] {
        assert!(names::run("name", &text).is_err(), "{text}");
    }
    let event = |text: &str| names::event("name", text);
    assert_eq!(event("3f-x_1").unwrap(), (None, "3f-x_1".to_owned()));
    assert_eq!(event("namespaces/a/events/3f-x").unwrap(), (Some("a".to_owned()), "3f-x".to_owned()));
    for text in ["", "a b", "namespaces/a/runs/x", "namespaces/a/events/", &"x".repeat(81)] {
        assert!(event(text).is_err(), "{text}");
    }
}

#[test]
fn a_new_resource_takes_its_id_from_either_place() {
    let create = |id: &str, name: &str| {
        names::to_create("a", "schedules", ("schedule_id", id), ("schedule.name", name))
            .map(|name| name.id)
            .map_err(|error| error.field)
    };
    assert_eq!(create("b", ""), Ok("b".to_owned()));
    assert_eq!(create("", "b"), Ok("b".to_owned()));
    assert_eq!(create("b", "namespaces/a/schedules/b"), Ok("b".to_owned()));
    assert_eq!(create("b", "c"), Err("schedule.name".to_owned()));
    assert_eq!(create("B", "b"), Err("schedule_id".to_owned()));
    assert_eq!(create("", ""), Err("schedule.name".to_owned()));
    assert_eq!(create("", "namespaces/other/schedules/b"), Err("schedule.name".to_owned()));
}

#[test]
fn etags_are_generations() {
    assert_eq!(convert::etag("etag", "").unwrap(), None);
    assert_eq!(convert::etag("etag", "12").unwrap(), Some(12));
    for text in ["x", "+12", "012", " 12"] {
        assert_eq!(convert::etag("policy.etag", text).unwrap_err().field, "policy.etag");
    }
}

#[test]
fn lists_of_fields_may_have_blanks_and_are_kept_without() {
    let with = json!({"triggers": [{"fields": {"hour": "3, 6,\t9 ", "month": " JAN", "minute": " * "}}]});
    let schedule = schedule::to_core(&given(&with), &name(), None).unwrap();
    let Trigger::Fields { hour, month, minute, .. } = &schedule.timing.triggers[0] else { panic!("fields") };
    let texts = [hour, month, minute].map(|text| text.as_deref().unwrap());
    assert_eq!(texts, ["3,6,9", "JAN", "*"]);
    assert_eq!(Plan::compile(&schedule.timing, b"").unwrap().children_count(), 3);
}

#[test]
fn the_planners_refusals_name_the_fields_of_the_message() {
    for (with, field) in [
        (json!({"triggers": [{"cron": "61 * * * *"}]}), "schedule.triggers[0].cron: minute"),
        (json!({"triggers": [{"fields": {"hour": "x"}}]}), "schedule.triggers[0].fields.hour"),
        (json!({"time_zone": "Mars/Base"}), "schedule.time_zone"),
        (
            json!({"triggers": [{"at": "2026-01-02T00:00:00Z"}], "end_time": "2026-01-01T00:00:00Z"}),
            "schedule.triggers[0].at",
        ),
    ] {
        let timing = schedule::timing_to_core(&given(&with), "default").unwrap();
        let refusal = Plan::compile(&timing, b"seed").unwrap_err();
        assert_eq!(convert::plan_refusal("schedule", refusal).field, field);
    }
}

#[test]
fn credentials_in_headers_are_hidden_and_kept() {
    let with = |headers: Value| given(&http(json!({"headers": headers})));
    let convert = |message: &v1::Schedule, stored: Option<&Schedule>| {
        schedule::to_core(message, &name(), stored).unwrap()
    };
    let stored =
        convert(&with(json!({"Authorization": "Bearer a", "X-Api-Key": "b", "X-Tenant": "c"})), None);
    let shown = schedule::to_message(&stored);
    let headers = to_json(&shown)["target"]["http"]["headers"].clone();
    assert_eq!(headers, json!({"Authorization": "***", "X-Api-Key": "***", "X-Tenant": "c"}));
    // What is given back as it is shown is kept; what is given in clear replaces it.
    assert_eq!(convert(&shown, Some(&stored)).target, stored.target);
    let changed = convert(&with(json!({"Authorization": "Bearer d", "X-Api-Key": "***"})), Some(&stored));
    let Target::Http { http: changed, .. } = changed.target else { panic!("not HTTP") };
    let kept = [("Authorization", "Bearer d"), ("X-Api-Key", "b")];
    assert_eq!(changed.headers, kept.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    // Nothing is kept where nothing is stored; and elsewhere, three stars are three stars.
    let refused = schedule::to_core(&with(json!({"X-Api-Key": "***"})), &name(), None).unwrap_err();
    assert_eq!(refused[0].field, "schedule.target.http.headers.X-Api-Key");
    assert!(schedule::to_core(&with(json!({"X-Tenant": "***"})), &name(), None).is_ok());
    let text = format!("{stored:?} {shown:?}");
    assert!(!text.contains("Bearer a"), "{text}");
}

#[test]
fn kinds_of_a_later_version_stay_with_an_alert() {
    use v1::TroubleKind::{NotSent, PolicyPaused};

    let name = Name { namespace: "default".to_owned(), id: "a".to_owned() };
    let slack = v1::SlackTarget { url: "https://a.example/x".to_owned(), ..Default::default() };
    let of = |kinds: &[v1::TroubleKind]| v1::Alert {
        troubles: Some(v1::AlertTroubles {
            kinds: kinds.iter().map(|kind| (*kind).into()).collect(),
            ..Default::default()
        }),
        target: Some(v1::AlertTarget { target: Some(v1::alert_target::Target::Slack(slack.clone())) }),
        ..Default::default()
    };
    let kinds = |alert: &v1::Alert, stored: &[&str]| {
        let mut before = convert::alert::to_core(&of(&[]), &name, None).unwrap();
        before.troubles.as_mut().unwrap().kinds = stored.iter().map(|word| (*word).to_owned()).collect();
        convert::alert::to_core(alert, &name, Some(&before)).unwrap().troubles.unwrap().kinds
    };
    assert_eq!(kinds(&of(&[]), &["of_later"]), ["of_later"], "not all");
    assert_eq!(kinds(&of(&[NotSent]), &["of_later", "not_sent"]), ["of_later", "not_sent"]);
    assert_eq!(kinds(&of(&[PolicyPaused]), &["of_later", "not_sent"]), ["policy_paused"], "somebody chose");
    assert!(kinds(&of(&[]), &["of_later", "not_sent"]).is_empty(), "all are asked for");
    assert!(kinds(&of(&[]), &[]).is_empty());
}

#[test]
fn payloads_are_merged_as_rfc_7396_says() {
    // The examples of its appendix, but for those whose target is no JSON.
    for (whole, patch, merged) in [
        (r#"{"a":"b"}"#, json!({"a": "c"}), r#"{"a":"c"}"#),
        (r#"{"a":"b"}"#, json!({"b": "c"}), r#"{"a":"b","b":"c"}"#),
        (r#"{"a":"b"}"#, json!({"a": null}), "{}"),
        (r#"{"a":"b","b":"c"}"#, json!({"a": null}), r#"{"b":"c"}"#),
        (r#"{"a":["b"]}"#, json!({"a": "c"}), r#"{"a":"c"}"#),
        (r#"{"a":"c"}"#, json!({"a": ["b"]}), r#"{"a":["b"]}"#),
        (r#"{"a":{"b":"c"}}"#, json!({"a": {"b": "d", "c": null}}), r#"{"a":{"b":"d"}}"#),
        (r#"{"a":[{"b":"c"}]}"#, json!({"a": ["x"]}), r#"{"a":["x"]}"#),
        (r#"["a","b"]"#, json!(["c", "d"]), r#"["c","d"]"#),
        (r#"{"a":"b"}"#, json!(["c"]), r#"["c"]"#),
        (r#"{"a":"foo"}"#, json!(null), "null"),
        (r#"{"a":"foo"}"#, json!("bar"), r#""bar""#),
        (r#"{"e":null}"#, json!({"a": "b"}), r#"{"a":"b","e":null}"#),
        (r#"["x"]"#, json!({"a": "b", "c": null}), r#"{"a":"b"}"#),
        ("", json!({"a": {"bb": {"ccc": null}}}), r#"{"a":{"bb":{}}}"#),
    ] {
        let base = tollgate_core::model::Payload::of(whole);
        let patch = convert::payload::from_json(&patch);
        assert_eq!(convert::payload::merged("payload", &base, &patch).unwrap().json, merged, "{whole}");
    }
}
