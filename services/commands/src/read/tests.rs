//! What commands are read, and what is said of others.

use proptest::prelude::*;
use serde_json::json;
use tollgate_proto::v1::apply_resources_request::Resource;

use super::*;
use crate::command::{Act, Pausable};

fn scope() -> Scope {
    Scope { namespace: "team".to_owned(), allow: Op::ALL.to_vec() }
}

fn good(text: &Value) -> Command {
    read(&text.to_string(), &scope()).command.unwrap()
}

/// The fields that are wrong, with what is said of them.
fn wrong(text: &Value) -> String {
    let fault = read(&text.to_string(), &scope()).command.unwrap_err();
    fault.details.iter().map(|(field, said)| format!("{field}: {said}\n")).collect()
}

#[test]
fn a_body_that_is_no_text_is_no_command() {
    let long = vec![b' '; MESSAGE_MAX_BYTES + 1];
    for (body, part) in [
        (&b""[..], "it is empty; expected a JSON object"),
        (&b"{\"id\": \"\xff\"}"[..], "it is no text: "),
        (&long[..], "it has 1048577 bytes, at most 1048576 are allowed"),
        (&b"[1]"[..], "expected a JSON object"),
    ] {
        let fault = read_body(body, &scope()).command.unwrap_err();
        assert!(fault.text().contains(part), "{part}: {fault:?}");
    }
    let good = with("trigger", json!({"resource": "schedules/nightly"})).to_string();
    assert!(read_body(good.as_bytes(), &scope()).command.is_ok());
}

/// A command with these members.
fn with(op: &str, members: Value) -> Value {
    let mut command = json!({"version": 1, "op": op, "id": "a:1"});
    for (name, value) in members.as_object().unwrap() {
        command[name] = value.clone();
    }
    command
}

#[test]
fn every_op_is_read() {
    let schedule = json!({"id": "nightly", "triggers": [{"cron": "0 3 * * *"}], "events": 3,
                          "target": {"http": {"url": "http://a/b"}}});
    let command = good(&with("apply", json!({"revision": 7, "resource": {"schedule": schedule}})));
    let Act::Apply(request) = &command.act else { panic!("{command:?}") };
    let Some(Resource::Schedule(schedule)) = &request.resource else { panic!("{request:?}") };
    assert_eq!((schedule.name.as_str(), schedule.events), ("namespaces/team/schedules/nightly", Some(3)));
    assert_eq!(
        (request.revision, request.namespace.as_str(), command.key.id.as_str()),
        (7, "team", "nightly")
    );

    let command = good(&with("delete", json!({"revision": 8, "resource": "namespaces/team/policies/p"})));
    assert!(
        matches!(&command.act, Act::Delete(_, name) if name == "namespaces/team/policies/p"),
        "{command:?}"
    );
    let command = good(&with("pause", json!({"revision": 8, "resource": "policies/p", "reason": "why"})));
    assert!(
        matches!(&command.act, Act::Pause(Pausable::Policy, _, reason) if reason == "why"),
        "{command:?}"
    );
    let command = good(&with("resume", json!({"revision": 9, "resource": "schedules/p"})));
    assert!(matches!(&command.act, Act::Resume(Pausable::Schedule, _)), "{command:?}");

    let trigger = json!({"resource": "schedules/x", "events": 5, "priority": 3, "payload": {"a": 1},
                         "launchTime": "2026-03-01T00:00:00Z"});
    let command = good(&with("trigger", trigger));
    let Act::Trigger(request) = &command.act else { panic!("{command:?}") };
    assert_eq!((request.request_id.as_str(), request.events, request.priority), ("a:1", Some(5), Some(3)));

    let items = json!({"resource": "schedules/x", "items": [{"tenant": "t1", "n": 1.50}, {"tenant": "t2"}],
                       "keyField": "tenant", "priority": 1});
    let command = good(&with("submit", items));
    let Act::Submit(header, items) = &command.act else { panic!("{command:?}") };
    assert_eq!((header.request_id.as_str(), header.priority, items.len()), ("a:1", Some(1), 2));
    assert_eq!(items[1].key, "t2");

    let release =
        json!({"version": 1, "op": "release", "resource": "0a-x-1", "outcome": "FAILED", "attempt": 2});
    let command = good(&release);
    let Act::Release(request) = &command.act else { panic!("{command:?}") };
    assert_eq!((request.name.as_str(), request.attempt), ("namespaces/team/events/0a-x-1", Some(2)));
    let extend = json!({"version": 1, "op": "extend", "resource": "0a-x-1", "ttl": "15m", "attempt": 2});
    let command = good(&extend);
    let Act::Extend(request) = &command.act else { panic!("{command:?}") };
    assert_eq!(request.ttl.map(|ttl| ttl.seconds), Some(900));
}

#[test]
fn numbers_of_items_keep_every_digit() {
    let text = r#"{"version": 1, "op": "submit", "id": "x", "resource": "schedules/x", "items": [12345678901234567890.50]}"#;
    let Act::Submit(_, items) = read(text, &scope()).command.unwrap().act else { panic!() };
    assert_eq!(items[0].data, "12345678901234567890.50");
}

#[test]
fn what_is_wrong_is_told_with_its_field() {
    for (text, part) in [
        (json!([]), "the message is no command"),
        (json!({}), "version: is missing, expected 1"),
        (json!({"version": 2, "op": "apply"}), "version: 2 is not known here, expected 1"),
        (json!({"version": "1", "op": "apply"}), "version: \"1\" is not known here"),
        (with("aply", json!({})), "op: \"aply\" is not allowed, expected apply"),
        (with("aply", json!({})), "did you mean apply?"),
        (json!({"version": 1, "op": 7}), "op: 7 is not allowed, expected text"),
        (json!({"version": 1, "id": "x"}), "op: is missing"),
        (
            json!({"version": 1, "op": "trigger", "resource": "schedules/x"}),
            "id: is missing: trigger needs one",
        ),
        (
            json!({"version": 1, "op": "trigger", "id": "a b", "resource": "schedules/x"}),
            "id: \"a b\" is not allowed",
        ),
        (with("delete", json!({"resource": "schedules/x"})), "revision: is missing: delete needs one"),
        (with("delete", json!({"resource": "schedules/x", "revision": 0})), "revision: 0 is not allowed"),
        (with("delete", json!({"resource": "schedules/x", "revision": 1.5})), "revision: 1.5 is not allowed"),
        (
            with("delete", json!({"resource": "schedules/x", "revision": 1, "etag": "3"})),
            "etag: no such field of delete",
        ),
        (
            with("trigger", json!({"resource": "schedules/x", "revision": 1})),
            "revision: no such field of trigger",
        ),
        (with("trigger", json!({"resource": "schedules/x", "event": 1})), "did you mean events?"),
        (
            with("trigger", json!({"resource": "policies/x"})),
            "resource: \"policies/x\" is not allowed, expected schedules/{id}",
        ),
        (with("trigger", json!({"resource": "schedules/x", "events": "many"})), "events: "),
        (
            with("delete", json!({"resource": "namespaces/other/schedules/x", "revision": 1})),
            "expected one of the namespace team",
        ),
        (
            with("delete", json!({"resource": "schedules/X y", "revision": 1})),
            "resource: \"schedules/X y\" is not allowed",
        ),
        (with("delete", json!({"revision": 1})), "resource: is missing"),
    ] {
        let told = wrong(&text);
        assert!(told.contains(part), "{text}\n{part}\n{told}");
    }
}

#[test]
fn what_is_wrong_with_items_events_and_resources_is_told() {
    let apply = |resource: Value| with("apply", json!({"revision": 1, "resource": resource}));
    for (text, part) in [
        (
            with("pause", json!({"resource": "alerts/x", "revision": 1})),
            "expected schedules/{id} or policies/{id}",
        ),
        (with("submit", json!({"resource": "schedules/x"})), "items: is missing"),
        (with("submit", json!({"resource": "schedules/x", "items": []})), "items: there are no items"),
        (with("submit", json!({"resource": "schedules/x", "items": {}})), "items: expected a list"),
        (with("submit", json!({"resource": "schedules/x", "items": [1], "keyField": "k"})), "items: item 1"),
        (
            with("submit", json!({"resource": "schedules/x", "items": [1], "wrapped": "yes"})),
            "wrapped: \"yes\"",
        ),
        (
            json!({"version": 1, "op": "release", "resource": "namespaces/other/events/a"}),
            "expected one of the namespace team",
        ),
        (
            json!({"version": 1, "op": "release", "resource": "not an id"}),
            "resource: \"not an id\" is not allowed",
        ),
        (json!({"version": 1, "op": "release", "resource": "a", "outcome": "MAYBE"}), "outcome: \"MAYBE\""),
        (
            json!({"version": 1, "op": "release", "resource": "0a-x-1", "outcome": "RETRY"}),
            "attempt: is missing: release needs",
        ),
        (
            json!({"version": 1, "op": "extend", "resource": "0a-x-1", "ttl": "1m"}),
            "attempt: is missing: extend needs",
        ),
        (
            apply(
                json!({"alert": {"id": "x", "troubles": {"installation": true}, "target": {"http": {"url": "http://a/b"}}}}),
            ),
            "resource.alert.troubles.installation: true is not allowed in a command",
        ),
        (
            apply(json!("schedules/x")),
            "resource: \"schedules/x\" is not allowed, expected an object with one of",
        ),
        (apply(json!({})), "resource: expected an object with one of"),
        (apply(json!({"run": {}})), "resource: \"run\" is not allowed"),
        (
            apply(json!({"schedule": {"id": "x"}, "policy": {"id": "x"}})),
            "resource: expected an object with one of",
        ),
        (
            apply(json!({"policy": {"id": "x", "maxInFligt": 3}})),
            "resource.policy.maxInFligt: no such field; did you mean maxInFlight?",
        ),
        (
            apply(json!({"policy": {"id": "x", "namespace": "other"}})),
            "resource.policy.namespace: \"other\" is not allowed, expected team",
        ),
        (
            apply(json!({"policy": {"name": "namespaces/other/policies/x", "maxInFlight": 3}})),
            "resource.policy.name: ",
        ),
        (
            apply(json!({"schedule": {"id": "x", "steps": []}})),
            "resource.schedule.steps: is not allowed in a command",
        ),
    ] {
        let told = wrong(&text);
        assert!(told.contains(part), "{text}\n{part}\n{told}");
    }
}

#[test]
fn a_refusal_finds_its_way_back() {
    let text = with("aply", json!({"reply": {"to": 7}, "revision": 3, "resource": "schedules/x"}));
    let Read { label, command } = read(&text.to_string(), &scope());
    assert!(command.is_err());
    assert_eq!(
        (label.id.as_deref(), label.revision, label.reply),
        (Some("a:1"), Some(3), Some(json!({"to": 7})))
    );
    let large = with(
        "delete",
        json!({"revision": 3, "resource": "schedules/x", "reply": "x".repeat(REPLY_MAX_BYTES)}),
    );
    assert!(wrong(&large).contains("reply: 1026 bytes are not allowed, expected at most 1024"));
    let twice = r#"{"version": 1, "op": "delete", "op": "apply"}"#;
    assert!(read(twice, &scope()).command.unwrap_err().text().contains("\"op\" is given twice"));
    let inside = r#"{"version": 1, "op": "apply", "id": "x", "revision": 1, "resource": {"policy": {"id": "x", "id": "y"}}}"#;
    let fault = read(inside, &scope()).command.unwrap_err();
    assert!(fault.details[0].0 == "resource" && fault.text().contains("\"id\" is given twice"), "{fault:?}");
}

#[test]
fn a_queue_allows_what_it_says() {
    let scope = Scope { allow: vec![Op::Trigger], ..scope() };
    let fault = read(&with("delete", json!({"revision": 1, "resource": "schedules/x"})).to_string(), &scope)
        .command
        .unwrap_err();
    assert_eq!(
        fault.text(),
        "PERMISSION_DENIED: op: \"delete\" is not allowed by this queue, expected trigger"
    );
    assert!(read(&with("trigger", json!({"resource": "schedules/x"})).to_string(), &scope).command.is_ok());
}

proptest! {
    /// Whatever comes, there is an answer, and none of another namespace.
    #[test]
    fn any_text_is_answered(text in "\\PC{0,200}") {
        prop_assert!(read(&text, &scope()).command.is_err());
    }

    #[test]
    fn a_part_of_a_command_is_none(cut in 0_usize..140) {
        let whole = with("apply", json!({"revision": 7, "resource": {"policy": {"id": "p", "maxInFlight": 3}}})).to_string();
        let part: String = whole.chars().take(cut).collect();
        if part.len() < whole.len() {
            prop_assert!(read(&part, &scope()).command.is_err());
        }
    }
}
