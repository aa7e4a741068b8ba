//! Decides what command a message is, or all that is wrong with it.
//!
//! In: the text of a message; the namespace of its queue, and what the queue may ask for. Out: what the sender calls it, as far
//! as that can be read, and the command or its faults, each with its field. Invariants: the namespace is the queue's, whatever
//! the message says; what is not known is refused, so that a misspelt field is never left out. Not here: what the service judges.

mod act;
mod resource;

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;
use tollgate_core::nearest::nearest;

use crate::command::{Command, Label, Op};
use crate::fault::{Fault, short};
use crate::message::MESSAGE_MAX_BYTES;
use crate::strict;

/// The version of commands that is known.
pub(crate) const VERSION: i64 = 1;
/// The most bytes of what comes back with an answer.
pub(crate) const REPLY_MAX_BYTES: usize = 1024;
/// The most characters of an id.
const ID_MAX_CHARS: usize = 128;

/// What is wrong with one field.
type Wrong = (String, String);

/// What a queue's messages may ask for, and where.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) namespace: String,
    pub(crate) allow: Vec<Op>,
}

/// A message, as far as it can be read.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) label: Label,
    pub(crate) command: Result<Command, Fault>,
}

/// The members of a command, each as it is written.
struct Members(BTreeMap<String, Box<RawValue>>);

impl Members {
    /// A member as a value; what cannot be read goes to `wrong`.
    fn value(&self, name: &str, wrong: &mut Vec<Wrong>) -> Option<Value> {
        let read = strict::value(self.0.get(name)?);
        read.map_err(|said| wrong.push((name.to_owned(), said))).ok()
    }

    /// A member that is text.
    fn text(&self, name: &str, wrong: &mut Vec<Wrong>) -> Option<String> {
        match self.value(name, wrong)? {
            Value::String(text) => Some(text),
            other => {
                wrong.push((name.to_owned(), format!("{} is not allowed, expected text", shown(&other))));
                None
            }
        }
    }
}

/// A value as an error repeats it.
fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::Null => "nothing".to_owned(),
        other => short(&other.to_string(), 60),
    }
}

/// Reads a message, whatever it has for a body.
pub(crate) fn read_body(body: &[u8], scope: &Scope) -> Read {
    let no_command = |said: String| {
        let fault = Fault::of_field("", format!("the message is no command: {said}; expected a JSON object"));
        Read { label: Label::default(), command: Err(fault) }
    };
    if body.is_empty() {
        return no_command("it is empty".to_owned());
    }
    if body.len() > MESSAGE_MAX_BYTES {
        let bytes = body.len();
        return no_command(format!("it has {bytes} bytes, at most {MESSAGE_MAX_BYTES} are allowed"));
    }
    match std::str::from_utf8(body) {
        Ok(text) => read(text, scope),
        Err(error) => no_command(format!("it is no text: {error}")),
    }
}

/// Reads a message that is text.
fn read(text: &str, scope: &Scope) -> Read {
    let members = match serde_json::from_str::<strict::Members>(text) {
        Ok(members) => Members(members.0.into_iter().collect()),
        Err(error) => {
            let fault =
                Fault::of_field("", format!("the message is no command: {error}; expected a JSON object"));
            return Read { label: Label::default(), command: Err(fault) };
        }
    };
    let mut wrong = Vec::new();
    version(&members, &mut wrong);
    let label = label(&members, &mut wrong);
    if !wrong.is_empty() {
        return Read { label, command: Err(Fault::of_fields(wrong)) };
    }
    let command = match label.op {
        Some(op) if !scope.allow.contains(&op) => {
            let words: Vec<&str> = scope.allow.iter().map(|op| op.word()).collect();
            let said =
                format!("{op:?} is not allowed by this queue, expected {}", words.join(", "), op = op.word());
            Err(Fault::not_allowed("op", said))
        }
        Some(op) => whole(op, &members, &label, scope),
        None => Err(Fault::of_field("op", "is missing")),
    };
    Read { label, command }
}

fn whole(op: Op, members: &Members, label: &Label, scope: &Scope) -> Result<Command, Fault> {
    let mut wrong = unknown(op, members);
    if op.is_numbered() && label.revision.is_none() {
        wrong.push(("revision".to_owned(), format!("is missing: {op} needs one, 1 or more")));
    }
    if op.is_named() && label.id.is_none() {
        wrong.push(("id".to_owned(), format!("is missing: {op} needs one, by which a repeat is known")));
    }
    let read = act::read(op, members, label, &scope.namespace, &mut wrong);
    match read {
        Some((key, act)) if wrong.is_empty() => {
            Ok(Command { key, revision: label.revision.unwrap_or_default(), act })
        }
        _ => Err(Fault::of_fields(wrong)),
    }
}

fn version(members: &Members, wrong: &mut Vec<Wrong>) {
    let known = members.0.get("version").map(|given| given.get());
    if known != Some("1") {
        let given = known.map_or_else(
            || "is missing".to_owned(),
            |given| format!("{} is not known here", short(given, 60)),
        );
        wrong.push(("version".to_owned(), format!("{given}, expected {VERSION}")));
    }
}

/// What the sender calls it; as much as can be read, so that a refusal finds its way.
fn label(members: &Members, wrong: &mut Vec<Wrong>) -> Label {
    let id = members.text("id", wrong).filter(|id| {
        let is_id = (1..=ID_MAX_CHARS).contains(&id.len())
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte));
        if !is_id {
            let said =
                format!("{:?} is not allowed, expected 1 to 128 of A-Z a-z 0-9 . _ : -", short(id, 80));
            wrong.push(("id".to_owned(), said));
        }
        is_id
    });
    let op = match members.text("op", wrong) {
        Some(word) => Op::of(&word).or_else(|| {
            let words = Op::ALL.map(Op::word);
            let meant =
                nearest(&word, words).map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            let said = format!("{:?} is not allowed, expected {}{meant}", short(&word, 60), words.join(", "));
            wrong.push(("op".to_owned(), said));
            None
        }),
        None => {
            if !members.0.contains_key("op") {
                wrong.push((
                    "op".to_owned(),
                    format!("is missing, expected {}", Op::ALL.map(Op::word).join(", ")),
                ));
            }
            None
        }
    };
    let revision = members.value("revision", wrong).and_then(|given| match given.as_i64() {
        Some(revision @ 1..) => Some(revision),
        _ => {
            let said = format!("{} is not allowed, expected a whole number, 1 or more", shown(&given));
            wrong.push(("revision".to_owned(), said));
            None
        }
    });
    let reply = match members.0.get("reply") {
        Some(raw) if raw.get().len() > REPLY_MAX_BYTES => {
            let bytes = raw.get().len();
            wrong.push((
                "reply".to_owned(),
                format!("{bytes} bytes are not allowed, expected at most {REPLY_MAX_BYTES}"),
            ));
            None
        }
        _ => members.value("reply", wrong).filter(|reply| !reply.is_null()),
    };
    let resource = members.0.get("resource").and_then(|raw| serde_json::from_str(raw.get()).ok());
    let resource = resource.map(|text: String| short(&text, 200));
    Label { id, op, resource, revision, reply }
}

/// What every command has.
const COMMON: [&str; 5] = ["version", "op", "id", "resource", "reply"];

/// What commands of one kind have beside it.
fn own(op: Op) -> &'static [&'static str] {
    match op {
        Op::Apply | Op::Delete | Op::Resume => &["revision"],
        Op::Pause => &["revision", "reason"],
        Op::Trigger => &["events", "launchTime", "priority", "payload"],
        Op::Submit => &["items", "keyField", "unitsField", "wrapped", "launchTime", "priority", "payload"],
        Op::Release => &["outcome", "message", "nextCheckTime", "cursor", "result", "attempt"],
        Op::Extend => &["ttl", "attempt"],
    }
}

fn unknown(op: Op, members: &Members) -> Vec<Wrong> {
    let known = || COMMON.iter().chain(own(op)).copied();
    let not_known = members.0.keys().filter(|name| !known().any(|known| known == name.as_str()));
    let told = |name: &String| {
        let said = match nearest(name, known()) {
            Some(near) => format!("no such field of {op}; did you mean {near}?"),
            None => format!("no such field of {op}, expected {}", known().collect::<Vec<_>>().join(", ")),
        };
        (short(name, 100), said)
    };
    not_known.map(told).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;
