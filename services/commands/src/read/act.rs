//! Decides what the members of a command ask for, op by op.

use bytes::Bytes;
use prost::{Message, Name};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tollgate_files::Kind;
use tollgate_items::{Format, Next, Options, Reader};
use tollgate_proto::{json, v1};

use super::resource::{applied, event, named};
use super::{Members, Wrong, own};
use crate::command::{Act, Key, Label, Op, Pausable};

/// The act, and what it is about; what is wrong goes to `wrong`.
pub(super) fn read(
    op: Op,
    members: &Members,
    label: &Label,
    namespace: &str,
    wrong: &mut Vec<Wrong>,
) -> Option<(Key, Act)> {
    match op {
        Op::Apply => {
            let (mut request, key) = applied(members, namespace, wrong)?;
            request.revision = label.revision.unwrap_or_default();
            Some((key, Act::Apply(Box::new(request))))
        }
        Op::Delete => {
            let (kind, name, key) = named(members, namespace, &Kind::ALL, wrong)?;
            Some((key, Act::Delete(kind, name)))
        }
        Op::Pause | Op::Resume => {
            let (kind, name, key) = named(members, namespace, &[Kind::Schedule, Kind::Policy], wrong)?;
            let what = if kind == Kind::Schedule { Pausable::Schedule } else { Pausable::Policy };
            if op == Op::Resume {
                return Some((key, Act::Resume(what, name)));
            }
            let reason = members.text("reason", wrong).unwrap_or_default();
            Some((key, Act::Pause(what, name, reason)))
        }
        Op::Trigger => {
            let found = named(members, namespace, &[Kind::Schedule], wrong);
            let request: Option<v1::TriggerScheduleRequest> = message(own(op), members, wrong);
            let ((_, name, key), mut request) = (found?, request?);
            request.name = name;
            request.request_id = label.id.clone().unwrap_or_default();
            Some((key, Act::Trigger(request)))
        }
        Op::Submit => submission(members, label, namespace, wrong),
        Op::Release => {
            let found = event(members, namespace, wrong);
            let request: Option<v1::ReleaseTokenRequest> = message(own(op), members, wrong);
            let ((name, key), request) = (found?, request?);
            attempt(op, request.attempt, wrong)?;
            Some((key, Act::Release(v1::ReleaseTokenRequest { name, ..request })))
        }
        Op::Extend => {
            let found = event(members, namespace, wrong);
            let request: Option<v1::ExtendTokenRequest> = message(own(op), members, wrong);
            let ((name, key), request) = (found?, request?);
            attempt(op, request.attempt, wrong)?;
            Some((key, Act::Extend(v1::ExtendTokenRequest { name, ..request })))
        }
    }
}

/// Which attempt is meant: a repeat, or what comes late, must not meet a later one.
fn attempt(op: Op, given: Option<u32>, wrong: &mut Vec<Wrong>) -> Option<()> {
    if given.is_none() {
        let said = format!(
            "is missing: {op} needs the attempt as its consumer got it, since it may come late or twice"
        );
        wrong.push(("attempt".to_owned(), said));
    }
    given.map(drop)
}

/// A message of the API out of some of the members.
fn message<M: Message + Name + Default>(
    names: &[&str],
    members: &Members,
    wrong: &mut Vec<Wrong>,
) -> Option<M> {
    let mut fields = Map::new();
    for name in names {
        if let Some(value) = members.value(name, wrong) {
            fields.insert((*name).to_owned(), value);
        }
    }
    let (message, errors) = json::read::<M>(Value::Object(fields));
    let is_whole = errors.is_empty();
    wrong.extend(errors.into_iter().map(|error| (error.field, error.message)));
    message.filter(|_| is_whole)
}

fn submission(
    members: &Members,
    label: &Label,
    namespace: &str,
    wrong: &mut Vec<Wrong>,
) -> Option<(Key, Act)> {
    let found = named(members, namespace, &[Kind::Schedule], wrong);
    let header: Option<v1::SubmissionHeader> =
        message(&["launchTime", "priority", "payload"], members, wrong);
    let options = Options {
        key_field: members.text("keyField", wrong),
        units_field: members.text("unitsField", wrong),
        wrapped: match members.value("wrapped", wrong) {
            Some(Value::Bool(wrapped)) => wrapped,
            None => false,
            Some(other) => {
                wrong.push(("wrapped".to_owned(), format!("{other} is not allowed, expected true or false")));
                false
            }
        },
        ..Options::new(Format::Json)
    };
    let items = match members.0.get("items") {
        Some(given) => items(given, options).map_err(|fault| wrong.push(fault)).ok(),
        None => {
            wrong.push(("items".to_owned(), "is missing, expected a list with at least one item".to_owned()));
            None
        }
    };
    let ((_, name, key), header, items) = (found?, header?, items?);
    let request_id = label.id.clone().unwrap_or_default();
    Some((key, Act::Submit(v1::SubmissionHeader { name, request_id, ..header }, items)))
}

/// The items of a list, as they are written.
fn items(given: &RawValue, options: Options) -> Result<Vec<v1::Item>, Wrong> {
    if !given.get().trim_start().starts_with('[') {
        return Err(("items".to_owned(), "expected a list with at least one item".to_owned()));
    }
    let told = |error: tollgate_items::ItemsError| {
        let is_option = ["key_field", "units_field", "wrapped"].contains(&error.field.as_str());
        let field = match error.field.as_str() {
            "key_field" => "keyField",
            "units_field" => "unitsField",
            "wrapped" => "wrapped",
            _ => "items",
        };
        let said = if is_option { error.said } else { error.to_string() };
        (field.to_owned(), said)
    };
    let mut reader = Reader::new(options).map_err(told)?;
    reader.feed(Bytes::copy_from_slice(given.get().as_bytes()));
    reader.end();
    let mut items = Vec::new();
    loop {
        match reader.advance().map_err(told)? {
            Next::Item(item) => items.push(v1::Item { data: item.data, key: item.key, units: item.units }),
            Next::Busy => {}
            Next::Hungry | Next::End => return Ok(items),
        }
    }
}
