//! A resource as it stands in a file, to be copied.

use std::fmt::Write as _;

use maud::{Markup, html};
use prost::{Message, Name};
use serde_json::{Map, Value};
use tollgate_proto::json::to_file_json;

use crate::parts::draft::{OUTPUT_ONLY, What};
use crate::words::show::short;

/// The namespace that need not be said.
const DEFAULT: &str = "default";

/// The resource's document, as `tollgate apply` reads it. What the service sets itself is left out.
pub(crate) fn file<M: Message + Name>(what: What, resource: &M) -> String {
    let Value::Object(mut members) = to_file_json(resource) else { return String::new() };
    let name = members.remove("name");
    let name = name.as_ref().and_then(Value::as_str).unwrap_or_default();
    let namespace = name.split('/').nth(1).unwrap_or(DEFAULT);
    members.retain(|member, _| !OUTPUT_ONLY.iter().any(|known| camel(known) == *member));
    with_ids(&mut members, namespace);
    let mut text = String::new();
    if has_secret(&members) {
        text.push_str("# Its secret is not shown: hasSecret keeps the one that is stored. Elsewhere, say secret: whsec_…\n");
    }
    let kind = what.word();
    let kind = kind.get(..1).unwrap_or_default().to_uppercase() + kind.get(1..).unwrap_or_default();
    let _ = write!(text, "kind: {kind}\nid: {}\n", short(name));
    if namespace != DEFAULT {
        let _ = writeln!(text, "namespace: {namespace}");
    }
    text.push_str(&serde_saphyr::to_string(&Value::Object(members)).unwrap_or_default());
    text
}

/// Schedules and policies by their ids, which is enough in their own namespace.
pub(crate) fn with_ids(members: &mut Map<String, Value>, namespace: &str) {
    let own = format!("namespaces/{namespace}/");
    let by_id = |value: &mut Value| {
        if let Value::String(name) = value
            && name.starts_with(&own)
        {
            *name = short(name).to_owned();
        }
    };
    for name in ["policy", "policies", "schedules"] {
        match members.get_mut(name) {
            Some(Value::Array(names)) => names.iter_mut().for_each(by_id),
            Some(value) => by_id(value),
            None => {}
        }
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

/// The document in a fold.
pub(crate) fn fold(text: &str) -> Markup {
    html! {
        details.action #file {
            summary { "As YAML, for a file" }
            p.mute { "Keep it in a file, and " code { "tollgate apply -f FILE" } " makes the same again." }
            pre tabindex="0" aria-label="The resource as YAML" role="group" { code { (text) } }
        }
    }
}

#[cfg(test)]
mod tests {
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
        let schedule = from_json::<v1::Schedule>(members);
        let text = schedule.map(|schedule| file(What::Schedule, &schedule)).unwrap_or_default();
        let read: Result<Value, _> = serde_saphyr::from_str(&text);
        assert!(text.starts_with("# Its secret"), "{text}");
        assert_eq!(
            read.unwrap_or_default(),
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
    fn names_of_the_same_namespace_are_ids() {
        let alert = serde_json::json!({
            "name": "namespaces/a/alerts/b", "troubles": {}, "policies": ["namespaces/a/policies/p", "q"],
            "status": {"sent_count": 3},
        });
        let text = from_json::<v1::Alert>(alert).map(|alert| file(What::Alert, &alert)).unwrap_or_default();
        assert_eq!(text, "kind: Alert\nid: b\nnamespace: a\npolicies:\n- p\n- q\ntroubles: {}\n");
    }

    #[test]
    fn names_are_those_of_files() {
        assert_eq!((camel("uid"), camel("next_launch_time")), ("uid".into(), "nextLaunchTime".into()));
    }
}
