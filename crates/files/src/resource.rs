//! Decides which message the members of one resource describe, or all that is wrong with them.

use prost::{Message, Name as MessageName};
use serde_json::{Map, Value};
use tollgate_proto::convert::{Name, names};
use tollgate_proto::{FieldError, json, v1};

use super::kind::Kind;
use super::{Resource, values};

/// Stands for a name that cannot be read, so that the rest can be.
pub(super) const NOBODY: &str = "unnamed";

/// What is wrong with one field.
#[derive(Debug)]
pub(super) struct Fault {
    /// Its path in the resource; empty for the resource itself.
    pub(super) field: String,
    /// What is wrong.
    pub(super) message: String,
}

impl Fault {
    pub(super) fn new(field: &str, message: impl Into<String>) -> Self {
        Self { field: field.to_owned(), message: message.into() }
    }
}

impl From<FieldError> for Fault {
    fn from(error: FieldError) -> Self {
        Self { message: error.description(), field: error.field }
    }
}

/// The resource and its namespace. `job`: the id of the job of which it is a step, and after which it is called.
///
/// # Errors
/// All that is wrong: with its name, with its fields, and, where anything is, with their values as far as they can be
/// judged without the service.
pub(super) fn read(
    namespace: &str,
    mut members: Map<String, Value>,
    kind: Kind,
    job: Option<&str>,
) -> Result<(String, Resource), Vec<Fault>> {
    let mut faults = Vec::new();
    let namespace = own_namespace(namespace, members.remove("namespace"), &mut faults);
    let name = named(&mut members, kind, &namespace, job)
        .map_err(|fault| faults.push(fault))
        .unwrap_or_else(|()| Name { namespace, id: NOBODY.to_owned() });
    match judged(members, kind, &name, &mut faults) {
        Some(resource) if faults.is_empty() => Ok((name.namespace, resource)),
        _ => Err(faults),
    }
}

/// The namespace and the id of a schedule by its members; no id where what it is called cannot be read, of which [`read`] tells.
pub(super) fn called(namespace: &str, members: &Map<String, Value>) -> (String, Option<String>) {
    let mut faults = Vec::new();
    let namespace = own_namespace(namespace, members.get("namespace").cloned(), &mut faults);
    let given = |field: &str| Some((field.to_owned(), members.get(field)?.clone()));
    let mut ids: Map<String, Value> = ["id", "name"].into_iter().filter_map(given).collect();
    match named(&mut ids, Kind::Schedule, &namespace, None) {
        Ok(name) if faults.is_empty() => (name.namespace, Some(name.id)),
        _ => (namespace, None),
    }
}

/// One resource by its members, as they stand in a document, in this namespace where they do not say another one.
///
/// # Errors
/// All that is wrong, field and sentence, as far as it can be known without the service.
pub fn one(
    namespace: &str,
    members: Map<String, Value>,
    kind: Kind,
) -> Result<(String, Resource), Vec<(String, String)>> {
    let told = |faults: Vec<Fault>| faults.into_iter().map(|Fault { field, message }| (field, message));
    read(namespace, members, kind, None).map_err(|faults| told(faults).collect())
}

/// The resource without what is wrong with it. Adds to `faults` what is wrong with its fields, and, where anything is, with
/// their values.
fn judged(
    mut members: Map<String, Value>,
    kind: Kind,
    name: &Name,
    faults: &mut Vec<Fault>,
) -> Option<Resource> {
    let full = match kind {
        Kind::Policy => names::of_policy,
        Kind::Schedule => names::of_schedule,
        Kind::Calendar => names::of_calendar,
        Kind::Alert => names::of_alert,
    }(&name.namespace, &name.id);
    members.insert("name".to_owned(), Value::String(full));
    let resource = match kind {
        Kind::Policy => message::<v1::Policy>(members, faults).map(Resource::Policy),
        Kind::Schedule => message::<v1::Schedule>(members, faults).map(Resource::Schedule),
        Kind::Calendar => message::<v1::Calendar>(members, faults).map(Resource::Calendar),
        Kind::Alert => message::<v1::Alert>(members, faults).map(Resource::Alert),
    }?;
    if !faults.is_empty() {
        let more = values::wrong(&resource).into_iter().map(Fault::from);
        let more: Vec<Fault> = more.filter(|fault| is_news(fault, faults)).collect();
        faults.extend(more);
    }
    Some(resource)
}

/// Adds to what is wrong with the members of a resource, field and sentence, all else that can be found without the service.
/// Members that can be read are left to it, which judges their values.
pub fn faults(
    kind: Kind,
    members: Map<String, Value>,
    wrong: Vec<(String, String)>,
) -> Vec<(String, String)> {
    let mut faults: Vec<Fault> = wrong.into_iter().map(|(field, message)| Fault { field, message }).collect();
    let name = Name { namespace: NOBODY.to_owned(), id: NOBODY.to_owned() };
    judged(members, kind, &name, &mut faults);
    faults.into_iter().map(|Fault { field, message }| (field, message)).collect()
}

/// Whether a value's fault does not only come of what has been said: of a field that was left out because of its own fault, of
/// an item that was left out of a list, or of one that seems to be missing beside a misspelt one.
fn is_news(fault: &Fault, said: &[Fault]) -> bool {
    let kinds = ["schedule.", "policy.", "calendar.", "alert."];
    let path = kinds.iter().find_map(|kind| fault.field.strip_prefix(kind)).unwrap_or(&fault.field);
    let is_missing = fault.message.starts_with("expected ");
    let within = |outer: &str, inner: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[', ':']))
    };
    let comes_of = |one: &Fault| {
        // Behind an item that was left out, all others have other numbers.
        let list = one.field.strip_suffix(']').and_then(|item| item.rsplit_once('[')).map(|(list, _)| list);
        within(&one.field, path) || within(path, &one.field) || list.is_some_and(|list| within(list, path))
    };
    !said.iter().any(|one| is_missing && one.message.starts_with("no such field") || comes_of(one))
}

fn own_namespace(given: &str, own: Option<Value>, faults: &mut Vec<Fault>) -> String {
    let namespace = match own {
        None | Some(Value::Null) => given.to_owned(),
        Some(Value::String(namespace)) => namespace,
        Some(Value::Number(number)) => number.to_string(),
        Some(other) => {
            faults.push(Fault::new("namespace", format!("{other} is not allowed, expected text")));
            given.to_owned()
        }
    };
    if names::is_id(&namespace) {
        return namespace;
    }
    let expected = "1 to 63 characters of a-z, 0-9, ., _ and -";
    faults.push(Fault::new("namespace", format!("{namespace:?} is not allowed, expected {expected}")));
    NOBODY.to_owned()
}

/// The name that `id` or `name` gives; of a step, its job's id and its own.
fn named(
    members: &mut Map<String, Value>,
    kind: Kind,
    namespace: &str,
    job: Option<&str>,
) -> Result<Name, Fault> {
    let field = if members.contains_key("id") { "id" } else { "name" };
    let text = match (members.remove("id"), members.remove("name")) {
        (Some(id), None) => id,
        (None, Some(name)) => name,
        (Some(_), Some(_)) => {
            return Err(Fault::new("name", "excludes id, which is given too: give one of them"));
        }
        (None, None) => {
            let example = format!("is missing: write id: my-{}", kind.word().to_lowercase());
            return Err(Fault::new("id", example));
        }
    };
    let text = match text {
        Value::String(text) => text,
        // YAML makes numbers of names such as 2024.
        Value::Number(number) => number.to_string(),
        other => return Err(Fault::new(field, format!("{other} is not allowed, expected text"))),
    };
    let prefix = job.map(|job| format!("{job}.")).unwrap_or_default();
    let name = match (kind, text.contains('/')) {
        _ if job.is_some() => names::id(field, &text).map(|id| Name { namespace: namespace.to_owned(), id }),
        (Kind::Policy, true) => names::policy(field, &text),
        (Kind::Policy, false) => names::policy_within(field, namespace, &text),
        (Kind::Schedule, true) => names::schedule(field, &text),
        (Kind::Schedule, false) => names::schedule_within(field, namespace, &text),
        (Kind::Calendar, true) => names::calendar(field, &text),
        (Kind::Calendar, false) => names::calendar_within(field, namespace, &text),
        (Kind::Alert, true) => names::alert(field, &text),
        (Kind::Alert, false) => names::alert_within(field, namespace, &text),
    };
    name.map_err(|error| {
        let mut fault = Fault::from(error);
        // In the file, a step has its own part of the name alone.
        let own = text.strip_prefix(&prefix).unwrap_or(&text);
        if let Some(near) = usable(own, names::ID_MAX_CHARS.saturating_sub(prefix.len())) {
            fault.message.push_str(&format!("; write {field}: {near}"));
        }
        fault
    })
}

/// An id of at most so many characters that is as near as can be to what was given.
fn usable(text: &str, chars_max: usize) -> Option<String> {
    let lower = text.trim().to_lowercase();
    let plain: String =
        lower.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' }).collect();
    let plain: String = plain.trim_matches(['.', '_', '-']).chars().take(chars_max).collect();
    Some(plain.trim_end_matches(['.', '_', '-']).to_owned()).filter(|id| names::is_id(id))
}

fn message<M: Message + MessageName + Default>(
    members: Map<String, Value>,
    faults: &mut Vec<Fault>,
) -> Option<M> {
    let (message, errors) = json::read(Value::Object(members));
    faults.extend(errors.into_iter().map(|error| Fault { field: error.field, message: error.message }));
    message
}
