//! Decides what of a JSON value is taken, and brings it into the form that the strict deserialiser reads.
//!
//! Everything is checked here, because errors of the deserialiser do not say where they happened. What is wrong is noted
//! and left out, so that one reading finds all of it, up to [`FAULTS_MAX`].

use std::collections::HashMap;

use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value};

use super::elsewhere::Step;
use super::fault::{Fault, What};
use super::shape::Spelling;
use super::{DEPTH_MAX, JsonError, scalar};

/// The largest integer of which an IEEE 754 double holds all digits.
const EXACT_MAX: u64 = 1 << 53;
/// The most faults that are looked for in one value.
const FAULTS_MAX: usize = 100;

/// Normalises a message without what is wrong with it; says what is wrong.
pub(super) fn message(descriptor: &MessageDescriptor, value: Value) -> (Value, Vec<JsonError>) {
    let mut reader = Reader::default();
    let root = Step { descriptor: descriptor.clone(), field: None };
    let normal = reader.message(root, value, "").unwrap_or_else(|| Value::Object(Map::new()));
    let spelling = if reader.snake > reader.camel { Spelling::Snake } else { Spelling::Camel };
    (normal, reader.faults.into_iter().map(|fault| fault.told(spelling)).collect())
}

/// What is read so far.
#[derive(Default)]
struct Reader {
    faults: Vec<Fault>,
    /// The messages from the root to what is being read.
    way: Vec<Step>,
    /// How many names are spelled as in the .proto files, and how many as in JSON, where the two differ.
    snake: usize,
    camel: usize,
}

impl Reader {
    /// Notes what is wrong.
    fn keep<T>(&mut self, result: Result<T, Fault>) -> Option<T> {
        result.map_err(|fault| self.faults.push(fault)).ok()
    }

    fn message(&mut self, step: Step, value: Value, path: &str) -> Option<Value> {
        match step.descriptor.full_name() {
            "google.protobuf.Duration" => self.keep(scalar::duration(value, path)),
            "google.protobuf.Timestamp" => self.keep(scalar::timestamp(value, path)),
            "google.protobuf.FieldMask" => self.keep(scalar::field_mask(value, path)),
            "google.protobuf.Value" => self.keep(free(&value, path, 0).map(|()| value)),
            "google.protobuf.Struct" => {
                let read = if value.is_object() {
                    free(&value, path, 0).map(|()| value)
                } else {
                    Err(Fault::wrong(path, &value, "an object"))
                };
                self.keep(read)
            }
            _ => {
                self.way.push(step);
                let read = self.fields(value, path);
                self.way.pop();
                read
            }
        }
    }

    fn fields(&mut self, value: Value, path: &str) -> Option<Value> {
        let step = self.way.last()?.clone();
        let Value::Object(members) = value else {
            let what = What::NotAnObject { value, step };
            return self.keep(Err(Fault { path: path.to_owned(), what }));
        };
        let descriptor = &step.descriptor;
        // What a call has beside its body comes from its path and query, in the names of the .proto files.
        let is_call = step.field.is_none() && descriptor.name().ends_with("Request");
        let mut normal = Map::new();
        let mut chosen: HashMap<String, FieldDescriptor> = HashMap::new();
        for (key, member) in members {
            if self.faults.len() >= FAULTS_MAX {
                break;
            }
            let Some(field) =
                descriptor.get_field_by_name(&key).or_else(|| descriptor.get_field_by_json_name(&key))
            else {
                let what = What::Unknown { key: key.clone(), value: member, way: self.way.clone() };
                self.faults.push(Fault { path: join(path, &key), what });
                continue;
            };
            if field.name() != field.json_name() && !is_call {
                *(if key == field.name() { &mut self.snake } else { &mut self.camel }) += 1;
            }
            let path = join(path, field.name());
            if member.is_null() && !is_free(&field) {
                continue;
            }
            if let Some(oneof) = field.containing_oneof().filter(|_| !is_optional(&field))
                && let Some(other) = chosen.insert(oneof.name().to_owned(), field.clone())
                && other.name() != field.name()
            {
                self.faults.push(Fault { path, what: What::Excludes(other) });
                continue;
            }
            let Some(member) = self.field_value(&field, member, &path) else { continue };
            if normal.insert(field.name().to_owned(), member).is_some() {
                let twice = format!("is given twice, as {} and {}", field.name(), field.json_name());
                self.faults.push(Fault::said(path, twice));
            }
        }
        Some(Value::Object(normal))
    }

    fn field_value(&mut self, field: &FieldDescriptor, value: Value, path: &str) -> Option<Value> {
        if field.is_map() {
            return self.map(field, value, path);
        }
        if field.is_list() {
            let Value::Array(items) = value else {
                let what = What::NotAList { value, field: field.clone() };
                return self.keep(Err(Fault { path: path.to_owned(), what }));
            };
            let mut normal = Vec::with_capacity(items.len());
            for (at, item) in items.into_iter().enumerate() {
                if self.faults.len() >= FAULTS_MAX {
                    break;
                }
                normal.extend(self.single(field, &field.kind(), item, &format!("{path}[{at}]")));
            }
            return Some(Value::Array(normal));
        }
        self.single(field, &field.kind(), value, path)
    }

    fn map(&mut self, field: &FieldDescriptor, value: Value, path: &str) -> Option<Value> {
        let Value::Object(members) = value else {
            return self.keep(Err(Fault::wrong(path, &value, "an object")));
        };
        let Kind::Message(entry) = field.kind() else { return Some(Value::Object(members)) };
        let kind = entry.map_entry_value_field().kind();
        let mut normal = Map::new();
        for (key, member) in members {
            if self.faults.len() >= FAULTS_MAX {
                break;
            }
            if let Some(member) = self.single(field, &kind, member, &join(path, &key)) {
                normal.insert(key, member);
            }
        }
        Some(Value::Object(normal))
    }

    fn single(&mut self, field: &FieldDescriptor, kind: &Kind, value: Value, path: &str) -> Option<Value> {
        if let Kind::Message(descriptor) = kind {
            let step = Step { descriptor: descriptor.clone(), field: Some(field.clone()) };
            return self.message(step, value, path);
        }
        self.keep(scalar::read(kind, value, path))
    }
}

/// Checks a free JSON value: its depth, and that its numbers survive as doubles.
fn free(value: &Value, path: &str, depth: usize) -> Result<(), Fault> {
    if depth > DEPTH_MAX {
        return Err(Fault::said(path, format!("is nested deeper than {DEPTH_MAX} levels")));
    }
    match value {
        Value::Array(items) => items
            .iter()
            .enumerate()
            .try_for_each(|(at, item)| free(item, &format!("{path}[{at}]"), depth + 1)),
        Value::Object(members) => {
            members.iter().try_for_each(|(key, member)| free(member, &join(path, key), depth + 1))
        }
        Value::Number(number)
            if number.as_i64().map_or_else(|| number.as_u64(), |n| Some(n.unsigned_abs()))
                > Some(EXACT_MAX) =>
        {
            let text = format!("{number} would lose digits: write integers beyond 2^53 as text, in quotes");
            Err(Fault::said(path, text))
        }
        _ => Ok(()),
    }
}

/// Whether `null` is a value of the field, and not its absence.
fn is_free(field: &FieldDescriptor) -> bool {
    !field.is_list()
        && !field.is_map()
        && matches!(field.kind(), Kind::Message(message) if message.full_name() == "google.protobuf.Value")
}

/// Whether the field's oneof only stands for the word `optional`.
fn is_optional(field: &FieldDescriptor) -> bool {
    field.field_descriptor_proto().proto3_optional()
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
