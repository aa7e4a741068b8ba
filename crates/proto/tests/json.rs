//! Messages from and to JSON, as callers write it.
#![expect(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use serde_json::{Value, json};
use tollgate_proto::json::{DEPTH_MAX, from_json, read, to_json};
use tollgate_proto::v1;

fn schedule(value: Value) -> v1::Schedule {
    from_json(value).unwrap()
}

fn refusal(value: Value) -> (String, String) {
    let error = from_json::<v1::Schedule>(value).unwrap_err();
    (error.field, error.message)
}

#[test]
fn names_enums_durations_and_numbers_are_read_as_people_write_them() {
    let given = schedule(json!({
        "name": "nightly",
        "timeZone": "Europe/Berlin",
        "triggers": [{"fields": {"hour": 3, "day_of_week": "MON-FRI"}}, {"interval": {"every": "1h 30m"}}],
        "catch_up": {"mode": "all", "horizon": "2h"},
        "overlap": "buffer-one",
        "gap": "GAP_RULE_SKIP",
        "repeat": 2,
        "finishBy": "900s",
        "events": 1e3,
        "target": {"http": {"url": "http://x/", "deadline": "0.25s"}, "release": "explicit"},
        "start_time": "2026-03-29T02:30:00+02:00",
        "policy": null,
    }));
    let strict = schedule(json!({
        "name": "nightly",
        "time_zone": "Europe/Berlin",
        "triggers": [{"fields": {"hour": "3", "dayOfWeek": "MON-FRI"}}, {"interval": {"every": "5400s"}}],
        "catchUp": {"mode": "CATCH_UP_MODE_ALL", "horizon": "7200s"},
        "overlap": "OVERLAP_BUFFER_ONE",
        "gap": "GAP_RULE_SKIP",
        "repeat": "REPEAT_RULE_BOTH",
        "finish_by": "15m",
        "events": 1000,
        "target": {"http": {"url": "http://x/", "deadline": "250ms"}, "release": "RELEASE_MODE_EXPLICIT"},
        "startTime": "2026-03-29T00:30:00Z",
    }));
    assert_eq!(given, strict);
    assert_eq!(given.catch_up.unwrap().mode(), v1::CatchUpMode::All);
    assert_eq!(given.finish_by.unwrap().seconds, 900);
    assert_eq!(given.events, Some(1000));
}

#[test]
fn what_is_wrong_is_named_by_its_path() {
    for (value, field, part) in [
        (json!([]), "", "an object"),
        (json!({"colour": 1}), "colour", "timeZone"),
        (json!({"colour": 1, "time_zone": "UTC"}), "colour", "time_zone"),
        (json!({"triggers": [{"cron": "@daily"}, {"crom": "x"}]}), "triggers[1].crom", "did you mean cron?"),
        (json!({"triggers": [{"cron": "@daily", "at": "2026-01-01T00:00:00Z"}]}), "triggers[0].", "excludes"),
        (json!({"triggers": {}}), "triggers", "a list"),
        (json!({"catch_up": {"mode": "SOME"}}), "catch_up.mode", "NONE, LATEST or ALL"),
        (json!({"overlap": 99}), "overlap", "ALLOW, SKIP"),
        (json!({"finish_by": "soon"}), "finish_by", "15m"),
        (json!({"finish_by": 15}), "finish_by", "15m"),
        (json!({"finish_by": "99999999999999s"}), "finish_by", "15m"),
        (json!({"start_time": "tomorrow"}), "start_time", "2026-"),
        (json!({"events": -1}), "events", "whole number"),
        (json!({"events": 1.5}), "events", "whole number"),
        (json!({"events": 5_000_000_000_u64}), "events", "4294967295"),
        (json!({"events": true}), "events", "whole number"),
        (json!({"name": ["x"]}), "name", "text"),
        (json!({"labels": {"a": {}}}), "labels.a", "text"),
        (json!({"labels": 7}), "labels", "an object"),
        (json!({"time_zone": "UTC", "timeZone": "UTC"}), "time_zone", "twice"),
        (json!({"target": {"http": {"has_secret": "yes"}}}), "target.http.has_secret", "true or false"),
        (json!({"payload": {"a": [1, 9_007_199_254_740_993_u64]}}), "payload.a[1]", "2^53"),
        (json!({"payload": -9_007_199_254_740_993_i64}), "payload", "2^53"),
    ] {
        let (found, message) = refusal(value.clone());
        assert!(
            found.starts_with(field) && (found.is_empty() == field.is_empty()),
            "{value}: {found} {message}"
        );
        assert!(message.contains(part), "{value}: {found} {message}");
    }
}

/// The reasons of all that is wrong with a schedule, by field.
fn reasons(value: Value) -> Vec<(String, String)> {
    let (_, errors) = read::<v1::Schedule>(value);
    errors.into_iter().map(|error| (error.field, error.message)).collect()
}

#[test]
fn all_that_is_wrong_is_said_at_once_and_the_rest_is_read() {
    let value = json!({
        "events": "many", "description": "kept", "labels": {"a": {}, "b": "kept"}, "retry": {"maxAttempts": -1},
        "triggers": [{"cron": "@daily"}, {"at": "soon"}, 7],
    });
    let (message, errors) = read::<v1::Schedule>(value);
    let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
    assert_eq!(fields, ["events", "labels.a", "retry.max_attempts", "triggers[1].at", "triggers[2]"]);
    let message = message.unwrap();
    assert_eq!((message.description.as_str(), message.labels.len()), ("kept", 1));
    let many: serde_json::Map<String, Value> = (0..5_000).map(|n| (format!("x{n}"), json!(1))).collect();
    assert_eq!(reasons(many.into()).len(), 100, "and it is bounded");
}

#[test]
fn what_was_meant_is_said_in_the_spelling_of_the_document() {
    for (value, part) in [
        (json!({"timezone": "UTC"}), "no such field; did you mean timeZone?"),
        (json!({"timezone": "UTC", "finish_by": "1s"}), "did you mean time_zone?"),
        (json!({"catchup": {}}), "did you mean catchUp?"),
        (json!({"trigers": []}), "did you mean triggers?"),
        (json!({"tz": "UTC"}), "did you mean timeZone?"),
        // One level up, further down, aside, of another kind.
        (
            json!({"triggers": [{"cron": "@daily", "timeZone": "UTC"}]}),
            "timeZone belongs to the schedule, one level up",
        ),
        (json!({"target": {"http": {"release": "EXPLICIT"}}}), "release belongs to target, one level up"),
        (json!({"target": {"http": {"events": 3}}}), "events belongs to the schedule, 2 levels up"),
        (json!({"cron": "0 3 * * *"}), "further down: triggers: [{cron: \"0 3 * * *\"}]"),
        (json!({"schedule": "0 3 * * *"}), "write triggers: [{cron: \"0 3 * * *\"}]"),
        (json!({"url": "http://a/"}), "target: {http: {url: \"http://a/\"}}"),
        (json!({"maxAttempts": 3}), "retry: {maxAttempts: 3}"),
        (json!({"max_attempts": 3, "time_zone": "UTC"}), "retry: {max_attempts: 3}"),
        (json!({"target": {"maxAttempts": 3}}), "it belongs to the schedule: retry: {maxAttempts: 3}"),
        (
            json!({"maxInFlight": 3}),
            "maxInFlight belongs to a policy, which the schedule names in policy, not to a schedule",
        ),
        (json!({"groupWait": "3s"}), "groupWait belongs to an alert, not to a schedule"),
        (json!({"suspend": true}), "`tollgate pause schedule ID`"),
        (json!({"target": {"http": {"method": "GET"}}}), "always sent by POST"),
        // Values.
        (
            json!({"overlap": "Forbid"}),
            "expected ALLOW, SKIP, BUFFER_ONE or CANCEL_OTHER; did you mean SKIP?",
        ),
        (json!({"catchUp": {"mode": "LATST"}}), "did you mean LATEST?"),
        (json!({"finishBy": 900}), "for seconds write 900s"),
        (json!({"finishBy": "900"}), "for seconds write 900s"),
        (json!({"policy": true}), "write it in quotes, \"true\""),
        (json!({"triggers": {"cron": "@daily"}}), "write triggers: [{…}]"),
        (json!({"triggers": "@daily"}), "write triggers: [{cron: \"@daily\"}]"),
        (json!({"triggers": ["@daily"]}), "write {cron: \"@daily\"}"),
        (json!({"target": "http://a/"}), "write {http: {url: \"http://a/\"}}"),
        (json!({"triggers": [{"interval": "15m"}]}), "write {every: \"15m\"}"),
    ] {
        let reasons = reasons(value.clone());
        let [(_, message)] = reasons.as_slice() else { panic!("{value}: {reasons:?}") };
        assert!(message.contains(part), "{value}: {message}");
    }
}

#[test]
fn only_what_may_be_written_is_offered_and_no_secret_is_repeated() {
    let [(_, message)] = &reasons(json!({"colour": 1}))[..] else { panic!() };
    for name in ["uid", "createTime", "nextLaunchTime", "childrenCount", "warnings", "pause"] {
        assert!(!message.contains(name), "{name}: {message}");
    }
    // They are taken all the same, so that what is shown can be given back.
    assert_eq!(reasons(json!({"uid": "x", "createTime": "2026-01-01T00:00:00Z", "children_count": 3})), []);
    let [(_, message)] = &reasons(json!({"secret": "whsec_hunter2"}))[..] else { panic!() };
    assert!(message.contains("target: {http: {secret: …}}") && !message.contains("hunter2"), "{message}");
}

#[test]
fn a_payload_may_be_nested_to_the_limit_inside_an_apply_request_and_no_deeper() {
    let nested = |depth: usize| (0..depth).fold(json!(1), |inner, _| json!({"a": inner}));
    let request = |depth: usize| {
        from_json::<v1::ApplyResourcesRequest>(json!({"schedule": {"payload": nested(depth)}}))
    };
    let message = request(DEPTH_MAX).unwrap();
    assert_eq!(to_json(&message), json!({"schedule": {"payload": nested(DEPTH_MAX)}}));
    assert!(request(DEPTH_MAX + 1).unwrap_err().field.starts_with("schedule.payload.a."));
}

#[test]
fn a_null_payload_is_null_and_other_nulls_are_absent() {
    let given = schedule(json!({"payload": null, "retry": null, "labels": null, "events": null}));
    assert_eq!(given, v1::Schedule { payload: given.payload.clone(), ..Default::default() });
    assert_eq!(given.payload.unwrap().kind, Some(prost_types::value::Kind::NullValue(0)));
}

#[test]
fn a_mask_is_read_in_either_spelling() {
    for mask in [json!("time_zone,target.http.has_secret"), json!(["timeZone", "target.http.hasSecret"])] {
        let request: v1::UpdateScheduleRequest = from_json(json!({"update_mask": mask})).unwrap();
        assert_eq!(request.update_mask.unwrap().paths, ["time_zone", "target.http.has_secret"]);
    }
}

#[test]
fn json_keeps_the_names_of_the_proto_and_numbers_as_numbers() {
    let run = v1::Run { schedule_generation: 7, state: v1::RunState::Running.into(), ..Default::default() };
    assert_eq!(to_json(&run), json!({"schedule_generation": 7, "state": "RUN_STATE_RUNNING"}));
}

/// JSON whose keys and texts are often those of the API.
fn any_json() -> impl Strategy<Value = Value> {
    const WORDS: [&str; 16] = [
        "name", "triggers", "cron", "fields", "interval", "every", "at", "target", "http", "url", "payload",
        "labels", "catch_up", "mode", "ALL", "15m",
    ];
    let text = prop_oneof![
        4 => proptest::sample::select(&WORDS[..]).prop_map(str::to_owned),
        1 => ".{0,12}",
        1 => "-?[0-9]{0,14}\\.?[0-9]{0,11}s?",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(text.clone(), inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_json_panics_and_what_is_taken_comes_back(value in any_json()) {
        for member in ["", "triggers", "target", "payload", "labels", "finish_by", "start_time", "catch_up"] {
            let value = if member.is_empty() { value.clone() } else { json!({ member: value.clone() }) };
            if let Ok(message) = from_json::<v1::Schedule>(value) {
                let text = to_json(&message);
                prop_assert_eq!(from_json::<v1::Schedule>(text).unwrap(), message);
            }
        }
    }
}
