//! Decides what the audit log says of a change.
//!
//! In: a resource before and after. Out: an [`Audit`] whose difference holds each field that changed. Invariants: no
//! secret is written; a large payload is named by its size and hash. Generation, uid and queue shard are always
//! noted, also where both sides are the same, because the version before this one reads them when it starts; a list leaves
//! such entries out.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use tollgate_core::model::{Alert, AlertTarget, Calendar, Payload, Policy, Schedule, Target};
use tollgate_proto::convert::{self, items, names, payload};
use tollgate_proto::{json as proto_json, mask, v1};
use tollgate_secrets::{has_sealed, is_alert_sealed, is_sealed};
use tollgate_service::actor::Caller;
use tollgate_store::plan::Audit;
use uuid::Uuid;

/// The longest payload that is written out, in bytes.
const PAYLOAD_MAX_BYTES: usize = 4096;
/// What the service itself keeps of a resource: noted apart, or not at all.
const OWN: [&str; 6] = ["name", "uid", "etag", "shards", "create_time", "update_time"];
const REDACTED: &str = "redacted";

/// Who did something, when, and what to call it.
#[derive(Clone, Debug)]
pub(crate) struct Deed {
    pub(crate) at_us: i64,
    pub(crate) actor: Caller,
    pub(crate) action: &'static str,
}

/// What one side of a change notes of itself.
struct Side {
    json: Value,
    generation: i64,
    uid: Uuid,
    shards: Vec<u16>,
}

/// A change of a schedule; the shards are those that must be told of it as it was before, and is after.
pub(crate) fn of_schedule(
    id: Uuid,
    deed: &Deed,
    before: Option<(&Schedule, Vec<u16>)>,
    after: Option<(&Schedule, Vec<u16>)>,
    named: (&str, &str),
) -> Audit {
    let sealed = |side: &Option<(&Schedule, Vec<u16>)>| {
        side.as_ref().is_some_and(|(schedule, _)| has_sealed(&schedule.target, &schedule.payload))
    };
    // What was in clear before it was sealed is a secret all the same.
    let hide = sealed(&before) || sealed(&after);
    let side = |(schedule, shards): (&Schedule, Vec<u16>)| Side {
        json: schedule_json(schedule, hide),
        generation: schedule.generation,
        uid: schedule.uid,
        shards,
    };
    let schedules = before.as_ref().zip(after.as_ref()).map(|(before, after)| (before.0, after.0));
    let mut difference = difference(before.map(side), after.map(side));
    if let Some((before, after)) = schedules {
        note_secrets(before, after, &mut difference);
    }
    entry(id, deed, named.0, names::of_schedule(named.0, named.1), difference)
}

/// A change of a policy.
pub(crate) fn of_policy(
    id: Uuid,
    deed: &Deed,
    before: Option<&Policy>,
    after: Option<&Policy>,
    named: (&str, &str),
) -> Audit {
    let side = |policy: &Policy| Side {
        json: proto_json::to_json(&convert::policy::to_message(policy)),
        generation: policy.generation,
        uid: policy.uid,
        shards: vec![policy.shard],
    };
    let difference = difference(before.map(side), after.map(side));
    entry(id, deed, named.0, names::of_policy(named.0, named.1), difference)
}

/// A change of a calendar.
pub(crate) fn of_calendar(
    id: Uuid,
    deed: &Deed,
    before: Option<&Calendar>,
    after: Option<&Calendar>,
    named: (&str, &str),
) -> Audit {
    let side = |calendar: &Calendar| Side {
        json: proto_json::to_json(&convert::calendar::to_message(calendar)),
        generation: calendar.generation,
        uid: calendar.uid,
        shards: Vec::new(),
    };
    let difference = difference(before.map(side), after.map(side));
    entry(id, deed, named.0, names::of_calendar(named.0, named.1), difference)
}

/// Says of a change that a calendar made it.
pub(crate) fn note_calendar(audit: &mut Audit, calendar: &Calendar) {
    if let Some(difference) = audit.difference.as_object_mut() {
        let name = names::of_calendar(&calendar.namespace, &calendar.id);
        let dates = json!({ "old": "other dates", "new": format!("dates of generation {}", calendar.dates_generation) });
        difference.insert(format!("exclude_calendars.{name}"), dates);
    }
}

/// A change of an alert.
pub(crate) fn of_alert(
    id: Uuid,
    deed: &Deed,
    before: Option<&Alert>,
    after: Option<&Alert>,
    named: (&str, &str),
) -> Audit {
    let hide = [before, after].into_iter().flatten().any(|alert| is_alert_sealed(&alert.target));
    let side = |alert: &Alert| Side {
        json: alert_json(alert, hide),
        generation: alert.generation,
        uid: alert.uid,
        shards: Vec::new(),
    };
    let mut difference = difference(before.map(side), after.map(side));
    let secret = |alert: &Alert| match &alert.target {
        AlertTarget::Http { http } => http.secret.clone(),
        AlertTarget::Slack { slack } => Some(slack.url.clone()),
        AlertTarget::Sqs { .. } => None,
    };
    if let (Some(old), Some(new)) = (before.and_then(secret), after.and_then(secret))
        && old != new
    {
        let both = json!({ "old": REDACTED, "new": format!("{REDACTED}, another one") });
        difference.insert("target.secret".to_owned(), both);
    }
    entry(id, deed, named.0, names::of_alert(named.0, named.1), difference)
}

/// An alert as JSON, in which credentials do not stand anyway; without all that is sealed where anything is.
fn alert_json(alert: &Alert, hide: bool) -> Value {
    let mut message = convert::alert::to_message(alert, None);
    let target = message.target.as_mut().and_then(|target| target.target.as_mut());
    if let Some(v1::alert_target::Target::Http(http)) = target
        && hide
    {
        convert::hide_all_headers(http);
    }
    proto_json::to_json(&message)
}

/// Something that was done with a schedule and did not change it.
pub(crate) fn note(id: Uuid, deed: &Deed, schedule: &Schedule, details: &[(&str, Value)]) -> Audit {
    let mut difference: Map<String, Value> =
        details.iter().map(|(key, value)| ((*key).to_owned(), json!({ "new": value }))).collect();
    let generation = schedule.generation;
    difference.insert("generation".to_owned(), json!({ "old": generation, "new": generation }));
    let resource = names::of_schedule(&schedule.namespace, &schedule.id);
    entry(id, deed, &schedule.namespace, resource, difference)
}

/// An entry as callers see it.
pub(crate) fn to_message(audit: &Audit) -> v1::AuditEntry {
    let empty = Map::new();
    let difference = audit.difference.as_object().unwrap_or(&empty);
    let changed = |sides: &Value| sides.get("old") != sides.get("new");
    let shown: Map<String, Value> = difference
        .iter()
        .filter(|(key, sides)| *key != "generation" && changed(sides))
        .map(|(key, sides)| (key.clone(), sides.clone()))
        .collect();
    v1::AuditEntry {
        time: Some(convert::timestamp(audit.at_us)),
        actor: audit.actor.clone(),
        action: audit.action.clone(),
        resource: audit.resource.clone(),
        generation: number(&audit.difference, "generation", "new").unwrap_or_default(),
        difference: Some(payload::struct_from_json(&shown)),
    }
}

/// A number that an entry notes.
pub(crate) fn number(difference: &Value, key: &str, side: &str) -> Option<i64> {
    difference.get(key)?.get(side)?.as_i64()
}

fn entry(
    id: Uuid,
    deed: &Deed,
    namespace: &str,
    resource: String,
    mut difference: Map<String, Value>,
) -> Audit {
    if !deed.actor.reason.is_empty() {
        difference.insert("reason".to_owned(), json!({ "new": deed.actor.reason }));
    }
    Audit {
        id,
        at_us: deed.at_us,
        actor: deed.actor.name.clone(),
        namespace: namespace.to_owned(),
        resource,
        action: deed.action.to_owned(),
        difference: Value::Object(difference),
    }
}

fn difference(before: Option<Side>, after: Option<Side>) -> Map<String, Value> {
    let fields = |side: &Option<Side>| {
        let mut json = side.as_ref().map_or_else(|| json!({}), |side| side.json.clone());
        if let Some(fields) = json.as_object_mut() {
            fields.retain(|key, _| !OWN.contains(&key.as_str()));
        }
        json
    };
    let mut found = match mask::difference(&fields(&before), &fields(&after)) {
        Value::Object(found) => found,
        _ => Map::new(),
    };
    // A deletion is a generation of its own.
    let deleted = after.is_none().then(|| before.as_ref().map(|side| side.generation + 1)).flatten();
    let mut note = |key: &str, value: &dyn Fn(&Side) -> Value, last: Option<Value>| {
        let mut sides = json!({});
        if let Some(before) = &before {
            sides["old"] = value(before);
        }
        if let Some(new) = after.as_ref().map(value).or(last) {
            sides["new"] = new;
        }
        found.insert(key.to_owned(), sides);
    };
    note("generation", &|side| side.generation.into(), deleted.map(Value::from));
    note("uid", &|side| side.uid.to_string().into(), None);
    note("shards", &|side| side.shards.clone().into(), None);
    found
}

/// A schedule as JSON without what must not be kept in a log: credentials, and all that is sealed where anything is.
fn schedule_json(schedule: &Schedule, hide: bool) -> Value {
    let mut message = convert::schedule::to_message(schedule);
    let Payload { json, items, .. } = &schedule.payload;
    if let Some(text) = instead_of(json, hide) {
        message.payload = Some(payload::from_json(&Value::from(text)));
    }
    if let Some(text) = instead_of(items, hide) {
        message.items = items::stand_in(text);
    }
    for (name, value) in message.items_from.as_mut().and_then(convert::list_headers).into_iter().flatten() {
        if hide || convert::is_credential(name) {
            REDACTED.clone_into(value);
        }
    }
    let headers = match message.target.as_mut().and_then(|target| target.target.as_mut()) {
        Some(v1::target::Target::Http(http)) => Some(&mut http.headers),
        Some(v1::target::Target::Kafka(kafka)) => Some(&mut kafka.headers),
        _ => None,
    };
    for (name, value) in headers.into_iter().flatten() {
        if hide || convert::is_credential(name) {
            REDACTED.clone_into(value);
        }
    }
    proto_json::to_json(&message)
}

/// What is noted instead of a text, where that is too long, or a secret.
fn instead_of(text: &str, hide: bool) -> Option<String> {
    if hide && !text.is_empty() {
        return Some(REDACTED.to_owned());
    }
    (text.len() > PAYLOAD_MAX_BYTES).then(|| {
        let digest = Sha256::digest(text.as_bytes());
        let hash: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        format!("{} bytes, SHA-256 {hash}…", text.len())
    })
}

/// Says that a secret changed where its two values, both redacted, look the same.
fn note_secrets(before: &Schedule, after: &Schedule, difference: &mut Map<String, Value>) {
    let both = |old: &str, new: &str| {
        let what = if is_sealed(old) || !is_sealed(new) { "another one" } else { "sealed from now on" };
        json!({ "old": REDACTED, "new": format!("{REDACTED}, {what}") })
    };
    let of_payloads = [
        ("payload", &*before.payload.json, &*after.payload.json),
        ("items", &*before.payload.items, &*after.payload.items),
    ];
    for (field, old, new) in of_payloads {
        if is_sealed(new) && !old.is_empty() && old != new {
            difference.insert(field.to_owned(), both(old, new));
        }
    }
    if let (Some(before), Some(after)) = (&before.payload.from, &after.payload.from) {
        let headers = (&before.http.headers, &after.http.headers);
        note_headers("items_from.http.headers", headers, both, difference);
    }
    match (&before.target, &after.target) {
        (Target::Http { http: before, .. }, Target::Http { http: after, .. }) => {
            if let (Some(old), Some(new)) = (&before.secret, &after.secret)
                && old != new
            {
                difference.insert("target.http.secret".to_owned(), both(old, new));
            }
            note_headers("target.http.headers", (&before.headers, &after.headers), both, difference);
        }
        (Target::Kafka { kafka: before, .. }, Target::Kafka { kafka: after, .. }) => {
            note_headers("target.kafka.headers", (&before.headers, &after.headers), both, difference);
        }
        _ => {}
    }
}

/// Says so of headers, where what they say is hidden.
fn note_headers(
    field: &str,
    (before, after): (&BTreeMap<String, String>, &BTreeMap<String, String>),
    both: impl Fn(&str, &str) -> Value,
    difference: &mut Map<String, Value>,
) {
    for (name, new) in after {
        let hidden = convert::is_credential(name) || is_sealed(new);
        if let Some(old) = before.get(name).filter(|old| hidden && *old != new) {
            difference.insert(format!("{field}.{name}"), both(old, new));
        }
    }
}
