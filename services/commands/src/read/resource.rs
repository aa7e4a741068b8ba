//! Decides which resource a command names, and what an apply makes of it.

use serde_json::Value;
use tollgate_files::{Kind, Resource, one};
use tollgate_proto::convert::names;
use tollgate_proto::v1;
use tollgate_proto::v1::apply_resources_request::Resource as Sent;

use super::{Members, Wrong, shown};
use crate::command::Key;
use crate::fault::short;

/// The field that names it.
const FIELD: &str = "resource";

fn refuse<T>(wrong: &mut Vec<Wrong>, said: String) -> Option<T> {
    wrong.push((FIELD.to_owned(), said));
    None
}

/// The kind, full name and key of what `schedules/nightly` names, among these kinds.
pub(super) fn named(
    members: &Members,
    namespace: &str,
    kinds: &[Kind],
    wrong: &mut Vec<Wrong>,
) -> Option<(Kind, String, Key)> {
    let example = || {
        let forms: Vec<String> = kinds.iter().map(|kind| format!("{}/{{id}}", kind.collection())).collect();
        forms.join(" or ")
    };
    if !members.0.contains_key(FIELD) {
        return refuse(wrong, format!("is missing, expected {}", example()));
    }
    let text = members.text(FIELD, wrong)?;
    let inner = match text.strip_prefix("namespaces/") {
        Some(rest) => match rest.split_once('/') {
            Some((own, inner)) if own == namespace => inner,
            _ => return refuse(wrong, elsewhere(&text, namespace)),
        },
        None => text.as_str(),
    };
    let found = inner.split_once('/').and_then(|(collection, id)| {
        let kind = kinds.iter().find(|kind| kind.collection() == collection)?;
        names::is_id(id).then(|| (*kind, id.to_owned()))
    });
    match found {
        Some((kind, id)) => {
            let collection = kind.collection();
            let name = format!("namespaces/{namespace}/{collection}/{id}");
            Some((kind, name, Key { collection, id }))
        }
        None => refuse(wrong, format!("{:?} is not allowed, expected {}", short(&text, 80), example())),
    }
}

fn elsewhere(text: &str, namespace: &str) -> String {
    format!(
        "{:?} is not allowed, expected one of the namespace {namespace}, which is the queue's",
        short(text, 160)
    )
}

/// The full name and key of an event.
pub(super) fn event(members: &Members, namespace: &str, wrong: &mut Vec<Wrong>) -> Option<(String, Key)> {
    if !members.0.contains_key(FIELD) {
        return refuse(wrong, "is missing, expected the event's id as its consumer got it".to_owned());
    }
    let text = members.text(FIELD, wrong)?;
    match names::event(FIELD, &text) {
        Ok((Some(own), _)) if own != namespace => refuse(wrong, elsewhere(&text, namespace)),
        Ok((_, id)) => {
            let name = names::of_event(namespace, &id);
            Some((name, Key { collection: "events", id }))
        }
        Err(error) => {
            wrong.push((error.field.clone(), error.description()));
            None
        }
    }
}

/// What is to be applied: a kind and its body, as in a file of `tollgate apply`.
pub(super) fn applied(
    members: &Members,
    namespace: &str,
    wrong: &mut Vec<Wrong>,
) -> Option<(v1::ApplyResourcesRequest, Key)> {
    const EXPECTED: &str = "an object with one of schedule, policy, calendar and alert";
    if !members.0.contains_key(FIELD) {
        return refuse(wrong, format!("is missing, expected {EXPECTED}"));
    }
    let given = members.value(FIELD, wrong)?;
    let Value::Object(given) = given else {
        return refuse(wrong, format!("{} is not allowed, expected {EXPECTED}", shown(&given)));
    };
    let mut given = given.into_iter();
    let (Some((word, body)), None) = (given.next(), given.next()) else {
        return refuse(wrong, format!("expected {EXPECTED}"));
    };
    let known = Kind::ALL.into_iter().find(|kind| kind.word().to_lowercase() == word);
    let Some(kind) = known else {
        return refuse(wrong, format!("{:?} is not allowed, expected {EXPECTED}", short(&word, 60)));
    };
    let place = |field: &str| {
        if field.is_empty() { format!("{FIELD}.{word}") } else { format!("{FIELD}.{word}.{field}") }
    };
    let Value::Object(body) = body else {
        wrong.push((place(""), format!("{} is not allowed, expected an object", shown(&body))));
        return None;
    };
    if let Some(said) = excluded(&body, namespace) {
        wrong.push((place(said.0), said.1));
        return None;
    }
    let (own, resource) = match one(namespace, body, kind) {
        Ok(read) => read,
        Err(faults) => {
            let placed = faults.into_iter().map(|(field, said)| {
                let field = field.strip_prefix(&format!("{word}.")).unwrap_or(&field).to_owned();
                (place(&field), said)
            });
            wrong.extend(placed);
            return None;
        }
    };
    if let Resource::Alert(alert) = &resource
        && alert.troubles.as_ref().is_some_and(|troubles| troubles.installation)
    {
        let said =
            format!("true is not allowed in a command, which is about the namespace {namespace} alone");
        wrong.push((place("troubles.installation"), said));
        return None;
    }
    let (name, resource) = sent(resource);
    if own != namespace {
        wrong.push((place("name"), elsewhere(&name, namespace)));
        return None;
    }
    let id = name.rsplit('/').next().unwrap_or_default().to_owned();
    let request = v1::ApplyResourcesRequest {
        namespace: namespace.to_owned(),
        resource: Some(resource),
        ..v1::ApplyResourcesRequest::default()
    };
    Some((request, Key { collection: kind.collection(), id }))
}

/// What files may have, and commands may not.
fn excluded(body: &serde_json::Map<String, Value>, namespace: &str) -> Option<(&'static str, String)> {
    if body.contains_key("steps") {
        let said = "is not allowed in a command, which is about one resource: send one for each schedule, of which onFinish \
                    names the next";
        return Some(("steps", said.to_owned()));
    }
    let own = body.get("namespace").filter(|own| own.as_str() != Some(namespace))?;
    Some((
        "namespace",
        format!("{} is not allowed, expected {namespace}, which is the queue's, or nothing", shown(own)),
    ))
}

fn sent(resource: Resource) -> (String, Sent) {
    match resource {
        Resource::Policy(policy) => (policy.name.clone(), Sent::Policy(policy)),
        Resource::Schedule(schedule) => (schedule.name.clone(), Sent::Schedule(schedule)),
        Resource::Calendar(calendar) => (calendar.name.clone(), Sent::Calendar(calendar)),
        Resource::Alert(alert) => (alert.name.clone(), Sent::Alert(alert)),
    }
}
