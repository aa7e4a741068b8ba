//! Decides how a resource stands in a file: what `parse` takes back, and an apply finds unchanged.
//!
//! In: a message as the service gives it. Out: its document. Invariants: what the service sets itself is left out; a secret is
//! not in it, only that there is one, which keeps it.

use std::fmt::Write as _;

use prost::{Message, Name};
use serde_json::{Map, Value};
use tollgate_proto::json::to_file_json;

use super::kind::Kind;

/// What the service says of a resource and nobody may set.
pub const OUTPUT_ONLY: [&str; 17] = [
    "name",
    "uid",
    "pause",
    "etag",
    "create_time",
    "update_time",
    "launch_classes",
    "children_count",
    "next_launch_time",
    "next_start_time",
    "follows",
    "start_delay",
    "shard",
    "status",
    "warnings",
    "used_by",
    "used_by_count",
];
/// The namespace that need not be said.
const DEFAULT: &str = "default";

/// The resource's document.
pub fn document<M: Message + Name>(kind: Kind, resource: &M) -> String {
    let Value::Object(mut members) = to_file_json(resource) else { return String::new() };
    let name = members.remove("name");
    let name = name.as_ref().and_then(Value::as_str).unwrap_or_default();
    let namespace = name.split('/').nth(1).unwrap_or(DEFAULT);
    members.retain(|member, _| !OUTPUT_ONLY.iter().any(|known| camel(known) == *member));
    with_ids(&mut members, namespace);
    without_derived(&mut members);
    let mut text = String::new();
    if has_secret(&members) {
        text.push_str("# Its secret is not shown: hasSecret keeps the one that is stored. Elsewhere, say secret: whsec_…\n");
    }
    let id = name.rsplit('/').next().unwrap_or_default();
    let head = [("kind", kind.word()), ("id", id), ("namespace", namespace)];
    for (field, value) in head.into_iter().filter(|(field, value)| *field != "namespace" || *value != DEFAULT)
    {
        // An id such as 2024 is text.
        let value = serde_saphyr::to_string(&value).unwrap_or_default();
        let _infallible = writeln!(text, "{field}: {}", value.trim_end());
    }
    if !members.is_empty() {
        text.push_str(&serde_saphyr::to_string(&Value::Object(members)).unwrap_or_default());
    }
    text
}

/// Schedules, policies and calendars by their ids, which is enough in their own namespace.
pub fn with_ids(members: &mut Map<String, Value>, namespace: &str) {
    let own = format!("namespaces/{namespace}/");
    let by_id = |value: &mut Value| {
        if let Value::String(name) = value
            && name.starts_with(&own)
        {
            *name = name.rsplit('/').next().unwrap_or_default().to_owned();
        }
    };
    for name in ["policy", "parent", "policies", "schedules", "excludeCalendars"] {
        match members.get_mut(name) {
            Some(Value::Array(names)) => names.iter_mut().for_each(by_id),
            Some(value) => by_id(value),
            None => {}
        }
    }
    if let Some(next) = members.get_mut("onFinish").and_then(|follows| follows.get_mut("schedule")) {
        by_id(next);
    }
}

/// Leaves out what follows from the rest: how many events there are, where each has an item.
pub fn without_derived(members: &mut Map<String, Value>) {
    if members.contains_key("items") {
        members.remove("events");
    }
}

fn has_secret(members: &Map<String, Value>) -> bool {
    let http = members.get("target").and_then(|target| target.get("http"));
    http.and_then(|http| http.get("hasSecret")).is_some_and(|has| has == &Value::Bool(true))
}

/// `create_time` as `createTime`.
fn camel(name: &str) -> String {
    let mut parts = name.split('_');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |name, part| {
        name + &part.get(..1).unwrap_or_default().to_uppercase() + part.get(1..).unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use tollgate_proto::json::from_json;
    use tollgate_proto::v1;

    use super::*;

    #[test]
    fn a_resource_is_a_document_without_what_the_service_sets() {
        let members = serde_json::json!({
            "name": "namespaces/team/schedules/nightly", "uid": "x", "etag": "3",
            "triggers": [{"cron": "0 3 * * *"}], "time_zone": "Europe/Berlin", "events": 5,
            "policy": "namespaces/team/policies/p", "launch_classes": ["H"], "children_count": 1,
            "target": {"http": {"url": "http://x/y", "has_secret": true, "headers": {"x_a": "no"}}},
            "payload": {"two_words": [1, "yes"]}, "description": "one: two\nthree",
        });
        let schedule: v1::Schedule = from_json(members).unwrap();
        let text = document(Kind::Schedule, &schedule);
        let read: Value = serde_saphyr::from_str(&text).unwrap();
        assert!(text.starts_with("# Its secret"), "{text}");
        assert_eq!(
            read,
            serde_json::json!({
                "kind": "Schedule", "id": "nightly", "namespace": "team",
                "triggers": [{"cron": "0 3 * * *"}], "timeZone": "Europe/Berlin", "events": 5, "policy": "p",
                "target": {"http": {"url": "http://x/y", "hasSecret": true, "headers": {"x_a": "no"}}},
                "payload": {"two_words": [1, "yes"]}, "description": "one: two\nthree",
            }),
            "{text}"
        );
    }

    #[test]
    fn the_number_of_events_is_left_to_items() {
        let items = serde_json::json!([{"data": {"two_words": 1}, "key": "acme", "units": 3}, {"data": [1]}]);
        let members = serde_json::json!({"name": "namespaces/a/schedules/b", "events": 2, "items": items});
        let text = document(Kind::Schedule, &from_json::<v1::Schedule>(members).unwrap());
        let read: Value = serde_saphyr::from_str(&text).unwrap();
        let expected = serde_json::json!({"kind": "Schedule", "id": "b", "namespace": "a", "items": items});
        assert_eq!(read, expected, "{text}");
    }

    #[test]
    fn names_of_the_same_namespace_are_ids() {
        let alert = serde_json::json!({
            "name": "namespaces/a/alerts/b", "troubles": {}, "policies": ["namespaces/a/policies/p", "q"],
            "status": {"sent_count": 3},
        });
        let text = document(Kind::Alert, &from_json::<v1::Alert>(alert).unwrap());
        assert_eq!(text, "kind: Alert\nid: b\nnamespace: a\npolicies:\n- p\n- q\ntroubles: {}\n");
    }

    #[test]
    fn a_calendar_is_a_document_without_those_who_use_it() {
        let calendar = serde_json::json!({
            "name": "namespaces/a/calendars/holidays", "dates": ["2026-12-24..2026-12-26"], "etag": "3",
            "used_by": ["namespaces/a/schedules/s"], "used_by_count": 1,
        });
        let text = document(Kind::Calendar, &from_json::<v1::Calendar>(calendar).unwrap());
        let read: Value = serde_saphyr::from_str(&text).unwrap();
        let dates = ["2026-12-24..2026-12-26"];
        let expected =
            serde_json::json!({"kind": "Calendar", "id": "holidays", "namespace": "a", "dates": dates});
        assert_eq!(read, expected, "{text}");
        let schedule = serde_json::json!({
            "name": "namespaces/a/schedules/s", "exclude_calendars": ["namespaces/a/calendars/holidays"],
            "on_finish": {"schedule": "namespaces/a/schedules/t"}, "follows": ["namespaces/a/schedules/r"],
        });
        let text = document(Kind::Schedule, &from_json::<v1::Schedule>(schedule).unwrap());
        assert_eq!(
            text,
            "kind: Schedule\nid: s\nnamespace: a\nexcludeCalendars:\n- holidays\nonFinish:\n  schedule: t\n"
        );
    }

    #[test]
    fn a_parent_of_the_same_namespace_is_an_id() {
        let policy = |parent: &str| v1::Policy {
            name: "namespaces/a/policies/p".to_owned(),
            parent: Some(parent.to_owned()),
            floor: Some(3),
            weight: Some(2),
            adopts: true,
            ..v1::Policy::default()
        };
        let text = document(Kind::Policy, &policy("namespaces/a/policies/root"));
        let (mut entries, mut wrong) = (Vec::new(), Vec::new());
        crate::parse(&"a.yaml".into(), &text, "other", &mut entries, &mut wrong);
        assert_eq!(wrong, [""; 0], "{text}");
        let crate::Resource::Policy(read) = &entries[0].resource else { panic!("{entries:?}") };
        assert_eq!(*read, policy("root"), "{text}");
        assert!(
            document(Kind::Policy, &policy("namespaces/b/policies/root"))
                .contains("namespaces/b/policies/root")
        );
    }

    #[test]
    fn ids_that_look_like_something_else_are_text() {
        for id in ["2024", "true", "1e3", "null", "a"] {
            let name = format!("namespaces/default/policies/{id}");
            let policy = v1::Policy { name: name.clone(), max_in_flight: Some(4), ..v1::Policy::default() };
            let text = document(Kind::Policy, &policy);
            let (mut entries, mut wrong) = (Vec::new(), Vec::new());
            crate::parse(&"a.yaml".into(), &text, "other", &mut entries, &mut wrong);
            assert_eq!(wrong, [""; 0], "{text}");
            assert_eq!(entries[0].name().rsplit('/').next(), Some(id), "{text}");
        }
    }

    #[test]
    fn names_are_those_of_files() {
        assert_eq!((camel("uid"), camel("next_launch_time")), ("uid".into(), "nextLaunchTime".into()));
    }
}
