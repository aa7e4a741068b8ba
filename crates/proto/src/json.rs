//! Decides how messages read and look as JSON: the proto3 JSON mapping, with the liberties that people need.
//!
//! In: any JSON value (parsed YAML among them). Out: a message, or the path and reason of everything that is wrong, with
//! what was meant where that can be guessed: a near name, the place where a field belongs, the words of other systems.
//! Reasons name fields as the value itself spells them (`maxInFlight` or `max_in_flight`), and only those that may be written.
//! Taken beyond the mapping: enum values without their prefix and in any case (`latest`), durations such as
//! `15m`, whole numbers where text is asked for (`hour: 3`). Given: field names as in the .proto files, 64-bit numbers
//! as numbers, defaults left out. Invariants: a field that is not known, or given twice, is refused; what
//! [`to_json`] gives, [`from_json`] takes back unchanged. Not here: what values are allowed (`convert`).

mod elsewhere;
mod fault;
mod normal;
mod scalar;
mod shape;
mod words;

use prost::{Message, Name};
use prost_reflect::{DynamicMessage, MessageDescriptor, SerializeOptions};
use serde_json::Value;

use crate::{descriptors, field::FieldError};

/// The deepest nesting of a free JSON value (a payload): the binary form of a deeper one is refused by decoders.
pub const DEPTH_MAX: usize = 24;

/// The largest whole number of which, as of all below it, an IEEE 754 double holds every digit.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Why a JSON value is not the message that it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", if field.is_empty() { String::new() } else { format!("{field}: ") })]
pub struct JsonError {
    /// Path from the message's root, as in `triggers[0].interval.every`; empty for the root.
    pub field: String,
    /// What is wrong, and what is allowed.
    pub message: String,
}

impl JsonError {
    pub(crate) fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }
}

impl From<JsonError> for FieldError {
    fn from(error: JsonError) -> Self {
        Self::said(error.field, error.message)
    }
}

/// A message as JSON; `null` for a message that is not part of the API.
pub fn to_json<M: Message + Name>(message: &M) -> Value {
    let options = SerializeOptions::new()
        .use_proto_field_name(true)
        .stringify_64_bit_integers(false)
        .skip_default_fields(true);
    descriptors::dynamic(message)
        .and_then(|dynamic| dynamic.serialize_with_options(serde_json::value::Serializer, &options).ok())
        .map_or(Value::Null, whole_numbers)
}

/// A message as people write it in files: as [`to_json`], with field names in lowerCamelCase.
pub fn to_file_json<M: Message + Name>(message: &M) -> Value {
    let options = SerializeOptions::new().stringify_64_bit_integers(false).skip_default_fields(true);
    descriptors::dynamic(message)
        .and_then(|dynamic| dynamic.serialize_with_options(serde_json::value::Serializer, &options).ok())
        .map_or(Value::Null, whole_numbers)
}

/// A message as the REST API gives it: see [`dynamic_to_json`]. `null` for a message that is not part of the API.
pub fn to_rest_json<M: Message + Name>(message: &M) -> Value {
    descriptors::dynamic(message).and_then(|dynamic| dynamic_to_json(&dynamic).ok()).unwrap_or(Value::Null)
}

/// Writes `1`, not `1.0`, for what a double holds exactly.
fn whole_numbers(value: Value) -> Value {
    match value {
        Value::Number(number) => {
            number.as_f64().filter(|_| number.is_f64()).and_then(exact).unwrap_or(Value::Number(number))
        }
        Value::Array(items) => items.into_iter().map(whole_numbers).collect(),
        Value::Object(members) => {
            Value::Object(members.into_iter().map(|(key, member)| (key, whole_numbers(member))).collect())
        }
        other => other,
    }
}

/// The whole number that a double is, if it is one of which doubles hold all digits.
pub(crate) fn exact(number: f64) -> Option<Value> {
    #[expect(clippy::cast_possible_truncation, reason = "whole and at most 2^53")]
    (number.fract() == 0.0 && number.abs() <= EXACT_MAX).then(|| Value::from(number as i64))
}

/// The message that a JSON object describes.
///
/// # Errors
/// [`JsonError`] for the first thing that is wrong.
pub fn from_json<M: Message + Name + Default>(value: Value) -> Result<M, JsonError> {
    match read(value) {
        (Some(message), errors) if errors.is_empty() => Ok(message),
        (_, errors) => Err(errors.into_iter().next().unwrap_or_else(unreadable)),
    }
}

/// The message that a JSON object describes, without what is wrong with it, and all that is wrong with it (100 things at
/// most). The message is whole only where nothing is wrong.
pub fn read<M: Message + Name + Default>(value: Value) -> (Option<M>, Vec<JsonError>) {
    let root = |message: String| JsonError::new("", message);
    let Some(descriptor) = descriptors::of::<M>() else {
        return (None, vec![root(format!("{} is not a message of this API", M::full_name()))]);
    };
    let (normal, mut errors) = normal::message(&descriptor, value);
    let read = DynamicMessage::deserialize(descriptor, normal).map_err(|error| root(error.to_string()));
    let read = read.and_then(|read| read.transcode_to().map_err(|error| root(error.to_string())));
    match read {
        Ok(message) => (Some(message), errors),
        Err(error) => {
            errors.push(error);
            (None, errors)
        }
    }
}

/// As [`read`], for a message that is known by its description only.
///
/// # Errors
/// [`JsonError`] for each thing that is wrong, 100 at most.
pub fn dynamic_from_json(
    descriptor: MessageDescriptor,
    value: Value,
) -> Result<DynamicMessage, Vec<JsonError>> {
    let (normal, errors) = normal::message(&descriptor, value);
    if !errors.is_empty() {
        return Err(errors);
    }
    DynamicMessage::deserialize(descriptor, normal)
        .map_err(|error| vec![JsonError::new("", error.to_string())])
}

fn unreadable() -> JsonError {
    JsonError::new("", "cannot be read")
}

/// A message by the proto3 JSON mapping to the letter, for programs: field names in lowerCamelCase, 64-bit numbers as
/// text, and fields that cannot be absent written even where they have their default.
///
/// # Errors
/// Contents that have no JSON form: a moment out of range, an `Any` of an unknown type.
pub fn dynamic_to_json(message: &DynamicMessage) -> Result<Value, JsonError> {
    let options = SerializeOptions::new().skip_default_fields(false);
    let value = message.serialize_with_options(serde_json::value::Serializer, &options);
    value.map(whole_numbers).map_err(|error| JsonError::new("", error.to_string()))
}
