//! Decides what a resource name is: `namespaces/{namespace}/{collection}/{id}`.

use tollgate_core::model::RunId;
use tollgate_core::plan::SHARDS_MAX;
use uuid::Uuid;

use crate::field::FieldError;

/// The most characters of an id.
pub const ID_MAX_CHARS: usize = 63;
/// The most characters of an event's id.
const EVENT_ID_MAX_CHARS: usize = 80;
pub(super) const ID: &str =
    "an id of 1 to 63 characters of a-z, 0-9, ., _ and - that begins and ends with a letter or digit";

/// A schedule, policy, calendar or alert within its namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The namespace's id.
    pub namespace: String,
    /// The resource's id.
    pub id: String,
}

/// Whether a text matches `[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?`.
pub fn is_id(text: &str) -> bool {
    let outer = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.len() <= ID_MAX_CHARS
        && bytes.first().is_some_and(outer)
        && bytes.last().is_some_and(outer)
        && bytes.iter().all(|byte| outer(byte) || b"._-".contains(byte))
}

/// An id.
///
/// # Errors
/// A text that is none.
pub fn id(field: &str, text: &str) -> Result<String, FieldError> {
    if is_id(text) { Ok(text.to_owned()) } else { Err(FieldError::new(field, text, ID)) }
}

/// The namespace's id in `namespaces/{namespace}`.
///
/// # Errors
/// Any other text.
pub fn namespace(field: &str, text: &str) -> Result<String, FieldError> {
    match text.strip_prefix("namespaces/") {
        Some(namespace) if is_id(namespace) => Ok(namespace.to_owned()),
        _ => Err(FieldError::new(field, text, format!("namespaces/{{namespace}}, with {ID}"))),
    }
}

/// `namespaces/{namespace}/schedules/{id}`.
///
/// # Errors
/// Any other text.
pub fn schedule(field: &str, text: &str) -> Result<Name, FieldError> {
    full(field, text, "schedules")
}

/// `namespaces/{namespace}/policies/{id}`.
///
/// # Errors
/// Any other text.
pub fn policy(field: &str, text: &str) -> Result<Name, FieldError> {
    full(field, text, "policies")
}

/// `namespaces/{namespace}/alerts/{id}`.
///
/// # Errors
/// Any other text.
pub fn alert(field: &str, text: &str) -> Result<Name, FieldError> {
    full(field, text, "alerts")
}

/// `namespaces/{namespace}/calendars/{id}`.
///
/// # Errors
/// Any other text.
pub fn calendar(field: &str, text: &str) -> Result<Name, FieldError> {
    full(field, text, "calendars")
}

/// A calendar by its id or its full name, in this namespace.
///
/// # Errors
/// Any other text, and names of other namespaces.
pub fn calendar_within(field: &str, namespace: &str, text: &str) -> Result<Name, FieldError> {
    within(field, namespace, text, "calendars")
}

/// An alert by its id or its full name, in this namespace.
///
/// # Errors
/// Any other text, and names of other namespaces.
pub fn alert_within(field: &str, namespace: &str, text: &str) -> Result<Name, FieldError> {
    within(field, namespace, text, "alerts")
}

/// A schedule by its id or its full name, in this namespace.
///
/// # Errors
/// Any other text, and names of other namespaces.
pub fn schedule_within(field: &str, namespace: &str, text: &str) -> Result<Name, FieldError> {
    within(field, namespace, text, "schedules")
}

/// A policy by its id or its full name, in this namespace.
///
/// # Errors
/// Any other text, and names of other namespaces.
pub fn policy_within(field: &str, namespace: &str, text: &str) -> Result<Name, FieldError> {
    within(field, namespace, text, "policies")
}

/// The name of a resource to be made: `{id_field}` decides, and `{name_field}`, where given, must agree with it.
///
/// # Errors
/// Neither is given, or they differ, or one is wrong.
pub fn to_create(
    namespace: &str,
    collection: &'static str,
    (id_field, given_id): (&str, &str),
    (name_field, given_name): (&str, &str),
) -> Result<Name, FieldError> {
    if given_id.is_empty() {
        return within(name_field, namespace, given_name, collection);
    }
    let id = id(id_field, given_id)?;
    if !given_name.is_empty() && within(name_field, namespace, given_name, collection)?.id != id {
        return Err(FieldError::new(name_field, given_name, format!("{id}, as {id_field} says, or nothing")));
    }
    Ok(Name { namespace: namespace.to_owned(), id })
}

/// The queue shard as ids have it: two hexadecimal digits, and three from 256 on. None for any other text.
pub fn shard(text: &str) -> Option<u16> {
    let shard = u16::from_str_radix(text, 16).ok().filter(|shard| *shard < SHARDS_MAX)?;
    (format!("{shard:02x}") == text).then_some(shard)
}

/// The namespace, queue shard and run in `namespaces/{namespace}/runs/{shard}-{run}`.
///
/// # Errors
/// Any other text.
pub fn run(field: &str, text: &str) -> Result<(String, u16, RunId), FieldError> {
    parts(text, "runs")
        .and_then(|(namespace, id)| run_id(id).map(|(shard, run)| (namespace, shard, run)))
        .ok_or_else(|| {
            FieldError::new(
                field,
                text,
                "namespaces/{namespace}/runs/{shard}-{run}, shard 00 to 3ff and run 32 of 0-9a-f",
            )
        })
}

/// The event's id in `namespaces/{namespace}/events/{event_id}` or in a bare id, and the namespace where given.
///
/// Whether the id was issued here is for the keyring to say.
///
/// # Errors
/// Any other text.
pub fn event(field: &str, text: &str) -> Result<(Option<String>, String), FieldError> {
    let (namespace, id) = match parts(text, "events") {
        Some((namespace, id)) => (Some(namespace), id),
        None => (None, text),
    };
    let characters = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    if id.is_empty() || id.len() > EVENT_ID_MAX_CHARS || !characters {
        let expected = "the event's id as its consumer got it, or namespaces/{namespace}/events/{event_id}";
        return Err(FieldError::new(field, text, expected));
    }
    Ok((namespace, id.to_owned()))
}

/// `namespaces/{namespace}/schedules/{id}`.
pub fn of_schedule(namespace: &str, id: &str) -> String {
    format!("namespaces/{namespace}/schedules/{id}")
}

/// `namespaces/{namespace}/policies/{id}`.
pub fn of_policy(namespace: &str, id: &str) -> String {
    format!("namespaces/{namespace}/policies/{id}")
}

/// `namespaces/{namespace}/calendars/{id}`.
pub fn of_calendar(namespace: &str, id: &str) -> String {
    format!("namespaces/{namespace}/calendars/{id}")
}

/// `namespaces/{namespace}/alerts/{id}`.
pub fn of_alert(namespace: &str, id: &str) -> String {
    format!("namespaces/{namespace}/alerts/{id}")
}

/// `namespaces/{namespace}/runs/{shard}-{run}`.
pub fn of_run(namespace: &str, shard: u16, run: RunId) -> String {
    format!("namespaces/{namespace}/runs/{shard:02x}-{run}")
}

/// `namespaces/{namespace}/events/{event_id}`.
pub fn of_event(namespace: &str, event_id: &str) -> String {
    format!("namespaces/{namespace}/events/{event_id}")
}

fn parts<'a>(text: &'a str, collection: &str) -> Option<(String, &'a str)> {
    let (namespace, rest) = text.strip_prefix("namespaces/")?.split_once('/')?;
    let (found, id) = rest.split_once('/')?;
    (found == collection && is_id(namespace)).then(|| (namespace.to_owned(), id))
}

pub(super) fn full(field: &str, text: &str, collection: &str) -> Result<Name, FieldError> {
    match parts(text, collection) {
        Some((namespace, id)) if is_id(id) => Ok(Name { namespace, id: id.to_owned() }),
        _ => Err(FieldError::new(
            field,
            text,
            format!("namespaces/{{namespace}}/{collection}/{{id}}, with {ID}"),
        )),
    }
}

fn within(field: &str, namespace: &str, text: &str, collection: &str) -> Result<Name, FieldError> {
    if is_id(text) {
        return Ok(Name { namespace: namespace.to_owned(), id: text.to_owned() });
    }
    match full(field, text, collection) {
        Ok(name) if name.namespace == namespace => Ok(name),
        _ => {
            let expected = format!("{ID}, or namespaces/{namespace}/{collection}/{{id}}");
            Err(FieldError::new(field, text, expected))
        }
    }
}

fn run_id(text: &str) -> Option<(u16, RunId)> {
    let (shard, run) = text.split_once('-')?;
    let hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if run.len() != 32 || !hex(run) {
        return None;
    }
    Some((self::shard(shard)?, RunId(Uuid::try_parse(run).ok()?)))
}
