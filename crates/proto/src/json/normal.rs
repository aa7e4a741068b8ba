//! Decides what of a JSON value is taken, and brings it into the form that the strict deserialiser reads.
//!
//! Everything is checked here, because errors of the deserialiser do not say where they happened.

use std::collections::HashMap;

use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value};

use super::{DEPTH_MAX, JsonError, scalar};

/// The largest integer of which an IEEE 754 double holds all digits.
const EXACT_MAX: u64 = 1 << 53;

/// Checks and normalises a message.
pub(super) fn message(descriptor: &MessageDescriptor, value: Value, path: &str) -> Result<Value, JsonError> {
    match descriptor.full_name() {
        "google.protobuf.Duration" => scalar::duration(value, path),
        "google.protobuf.Timestamp" => scalar::timestamp(value, path),
        "google.protobuf.FieldMask" => scalar::field_mask(value, path),
        "google.protobuf.Value" => {
            free(&value, path, 0)?;
            Ok(value)
        }
        "google.protobuf.Struct" => {
            if !value.is_object() {
                return Err(scalar::wrong(path, &value, "an object"));
            }
            free(&value, path, 0)?;
            Ok(value)
        }
        _ => fields(descriptor, value, path),
    }
}

fn fields(descriptor: &MessageDescriptor, value: Value, path: &str) -> Result<Value, JsonError> {
    let Value::Object(members) = value else {
        return Err(scalar::wrong(path, &value, &format!("an object with {}", names(descriptor))));
    };
    let mut normal = Map::new();
    let mut chosen: HashMap<String, String> = HashMap::new();
    for (key, member) in members {
        let Some(field) =
            descriptor.get_field_by_name(&key).or_else(|| descriptor.get_field_by_json_name(&key))
        else {
            let expected = format!("no such field, expected {}", names(descriptor));
            return Err(JsonError::new(join(path, &key), expected));
        };
        let path = join(path, field.name());
        if member.is_null() && !is_free(&field) {
            continue;
        }
        if let Some(oneof) = field.containing_oneof().filter(|_| !is_optional(&field))
            && let Some(other) = chosen.insert(oneof.name().to_owned(), field.name().to_owned())
            && other != field.name()
        {
            return Err(JsonError::new(path, format!("excludes {other}, which is given too")));
        }
        let member = field_value(&field, member, &path)?;
        if normal.insert(field.name().to_owned(), member).is_some() {
            let twice = format!("is given twice, as {} and {}", field.name(), field.json_name());
            return Err(JsonError::new(path, twice));
        }
    }
    Ok(Value::Object(normal))
}

fn field_value(field: &FieldDescriptor, value: Value, path: &str) -> Result<Value, JsonError> {
    if field.is_map() {
        return map(&field.kind(), value, path);
    }
    if field.is_list() {
        let Value::Array(items) = value else { return Err(scalar::wrong(path, &value, "a list")) };
        let items = items.into_iter().enumerate();
        return items.map(|(at, item)| single(&field.kind(), item, &format!("{path}[{at}]"))).collect();
    }
    single(&field.kind(), value, path)
}

fn map(kind: &Kind, value: Value, path: &str) -> Result<Value, JsonError> {
    let Value::Object(members) = value else { return Err(scalar::wrong(path, &value, "an object")) };
    let Kind::Message(entry) = kind else { return Ok(Value::Object(members)) };
    let kind = entry.map_entry_value_field().kind();
    let mut normal = Map::new();
    for (key, member) in members {
        let path = join(path, &key);
        normal.insert(key, single(&kind, member, &path)?);
    }
    Ok(Value::Object(normal))
}

fn single(kind: &Kind, value: Value, path: &str) -> Result<Value, JsonError> {
    match kind {
        Kind::Message(descriptor) => message(descriptor, value, path),
        Kind::Enum(descriptor) => scalar::enumeration(descriptor, value, path),
        Kind::String => scalar::text(value, path),
        Kind::Bool if value.is_boolean() => Ok(value),
        Kind::Bool => Err(scalar::wrong(path, &value, "true or false")),
        Kind::Double | Kind::Float => scalar::float(value, path),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => {
            scalar::integer(value, path, i128::from(i32::MIN), i128::from(i32::MAX))
        }
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => {
            scalar::integer(value, path, i128::from(i64::MIN), i128::from(i64::MAX))
        }
        Kind::Uint32 | Kind::Fixed32 => scalar::integer(value, path, 0, i128::from(u32::MAX)),
        Kind::Uint64 | Kind::Fixed64 => scalar::integer(value, path, 0, i128::from(u64::MAX)),
        Kind::Bytes => Ok(value),
    }
}

/// Checks a free JSON value: its depth, and that its numbers survive as doubles.
fn free(value: &Value, path: &str, depth: usize) -> Result<(), JsonError> {
    if depth > DEPTH_MAX {
        return Err(JsonError::new(path, format!("is nested deeper than {DEPTH_MAX} levels")));
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
            Err(JsonError::new(
                path,
                format!("{number} would lose digits: write integers beyond 2^53 as text"),
            ))
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

fn names(descriptor: &MessageDescriptor) -> String {
    let mut names: Vec<String> = descriptor.fields().map(|field| field.name().to_owned()).collect();
    names.sort();
    if names.is_empty() { "no fields".to_owned() } else { names.join(", ") }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
