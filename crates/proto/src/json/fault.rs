//! Decides how people are told what is wrong with a JSON value: what it is, what is allowed, what was meant.

use prost_reflect::{EnumDescriptor, FieldDescriptor};
use serde_json::Value;

use super::JsonError;
use super::elsewhere::{Step, belongs, example, own};
use super::shape::{Spelling, listed, names, writable};
use super::words;
use tollgate_core::nearest::{nearest, same};

/// The most characters of a value that an error repeats.
const SHOWN_CHARS_MAX: usize = 60;

/// One thing that is wrong.
#[derive(Debug)]
pub(super) struct Fault {
    /// Path from the root, by the names of the .proto files.
    pub(super) path: String,
    pub(super) what: What,
}

/// What it is.
#[derive(Debug)]
pub(super) enum What {
    /// A sentence.
    Said(String),
    /// No field of this name.
    Unknown { key: String, value: Value, way: Vec<Step> },
    /// Something else than the object that is asked for.
    NotAnObject { value: Value, step: Step },
    /// Something else than a list.
    NotAList { value: Value, field: FieldDescriptor },
    /// Two of what excludes each other.
    Excludes(FieldDescriptor),
    /// No value of the enum.
    NoValue { value: Value, descriptor: EnumDescriptor },
}

impl Fault {
    pub(super) fn said(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: path.into(), what: What::Said(text.into()) }
    }

    /// `value` is not what is expected.
    pub(super) fn wrong(path: &str, value: &Value, expected: &str) -> Self {
        Self::said(path, format!("{} is not allowed, expected {expected}", shown(value)))
    }

    /// The fault for people, by the spelling of their document.
    pub(super) fn told(self, spelling: Spelling) -> JsonError {
        let Self { path, what } = self;
        let message = match what {
            What::Said(text) => text,
            What::Unknown { key, value, way } => unknown(&key, &value, &way, spelling),
            What::NotAnObject { value, step } => not_an_object(&value, &step, spelling),
            What::NotAList { value, field } => not_a_list(&value, &field, spelling),
            What::Excludes(other) => {
                format!("excludes {}, which is given too: give one of them", spelling.of(&other))
            }
            What::NoValue { value, descriptor } => no_value(&value, &descriptor),
        };
        JsonError { field: path, message }
    }
}

/// A value as an error repeats it.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::Null => "nothing".to_owned(),
        other => other.to_string().chars().take(SHOWN_CHARS_MAX).collect(),
    }
}

/// A value as it may be given again in an example: what is long, or may be a secret, is left out.
fn repeated(key: &str, value: &Value) -> String {
    let key = key.to_ascii_lowercase();
    let secret =
        ["auth", "cookie", "key", "secret", "token", "password"].iter().any(|word| key.contains(word));
    match value {
        Value::Array(_) | Value::Object(_) | Value::Null => "…".to_owned(),
        _ if secret => "…".to_owned(),
        other => {
            Some(other.to_string()).filter(|text| text.len() <= SHOWN_CHARS_MAX).unwrap_or("…".to_owned())
        }
    }
}

fn unknown(key: &str, value: &Value, way: &[Step], spelling: Spelling) -> String {
    let Some(here) = way.last() else { return "no such field".to_owned() };
    if let Some(field) = own(&here.descriptor, key) {
        return format!("no such field; did you mean {}?", spelling.of(&field));
    }
    if let Some(told) = belongs(way, key, &repeated(key, value), spelling) {
        return format!("no such field here; {told}");
    }
    let fields = writable(&here.descriptor);
    if let Some(near) = nearest(key, fields.iter().map(|field| spelling.of(field))) {
        return format!("no such field; did you mean {near}?");
    }
    format!("no such field, expected {}", names(&here.descriptor, spelling, "or"))
}

fn not_an_object(value: &Value, step: &Step, spelling: Spelling) -> String {
    let descriptor = &step.descriptor;
    let all = names(descriptor, spelling, "and");
    let mut text = format!("{} is not allowed, expected an object with {all}", shown(value));
    let is_plain = !matches!(value, Value::Array(_) | Value::Null);
    let sole = words::sole(descriptor.name()).filter(|_| is_plain);
    if let Some(example) = sole.and_then(|path| example(descriptor, path, &repeated("", value), spelling)) {
        text = format!("{} is not allowed, expected an object: write {example}", shown(value));
    }
    text
}

fn not_a_list(value: &Value, field: &FieldDescriptor, spelling: Spelling) -> String {
    let name = spelling.of(field);
    let text = format!("{} is not allowed, expected a list", shown(value));
    let example = match (value, super::shape::inner(field)) {
        (Value::Object(_), Some(_)) => {
            return format!("{text}: begin its first line with \"- \", or write {name}: [{{…}}]");
        }
        (Value::Array(_), _) => None,
        (value, Some(inner)) => {
            words::sole(inner.name()).and_then(|path| example(&inner, path, &repeated(name, value), spelling))
        }
        (value, None) => Some(repeated(name, value)),
    };
    match example {
        Some(example) => format!("{text}: write {name}: [{example}]"),
        None => text,
    }
}

fn no_value(value: &Value, descriptor: &EnumDescriptor) -> String {
    let prefix = screaming(descriptor.name()) + "_";
    let all: Vec<String> = descriptor
        .values()
        .filter(|value| value.number() != 0)
        .map(|value| value.name().trim_start_matches(&prefix).to_owned())
        .collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let text = format!("{} is not allowed, expected {}", shown(value), listed(&all, "or"));
    let word = match value {
        Value::String(word) => word.clone(),
        Value::Bool(word) => word.to_string(),
        _ => return text,
    };
    let word = word.trim_start_matches(&prefix);
    let near = words::value(descriptor.name(), word)
        .or_else(|| same(word, all.iter().copied()))
        .or_else(|| nearest(word, all.iter().copied()));
    match near {
        Some(near) => format!("{text}; did you mean {near}?"),
        None => text,
    }
}

/// `CatchUpMode` to `CATCH_UP_MODE`.
pub(super) fn screaming(name: &str) -> String {
    let mut screaming = String::new();
    for (at, character) in name.char_indices() {
        if at > 0 && character.is_ascii_uppercase() {
            screaming.push('_');
        }
        screaming.push(character.to_ascii_uppercase());
    }
    screaming
}
