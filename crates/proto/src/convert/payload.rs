//! Decides what a payload may be: JSON that survives the way through doubles, of at most 256 KiB.

use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use tollgate_core::model::{PAYLOAD_MAX_BYTES, Payload};

use crate::field::FieldError;
use crate::json;

/// A payload in `field`; no value is no payload.
///
/// # Errors
/// Values that JSON does not have, and more than [`PAYLOAD_MAX_BYTES`] of text.
pub fn to_core(field: &str, value: Option<&Value>) -> Result<Payload, FieldError> {
    let Some(value) = value else { return Ok(Payload::default()) };
    checked(field, to_json(field, value, 0)?.to_string())
}

fn checked(field: &str, json: String) -> Result<Payload, FieldError> {
    if json.len() > PAYLOAD_MAX_BYTES {
        return Err(FieldError::new(
            field,
            format!("{} bytes", json.len()),
            format!("at most {PAYLOAD_MAX_BYTES} bytes of JSON"),
        ));
    }
    Ok(Payload::of(json))
}

/// A payload over which `patch` in `field` is merged, as RFC 7396 says. Its items stay as they are.
///
/// # Errors
/// As [`to_core`], also of what is merged.
pub fn merged(field: &str, base: &Payload, patch: &Value) -> Result<Payload, FieldError> {
    let patch = to_json(field, patch, 0)?;
    let mut whole = serde_json::from_str(&base.json).unwrap_or(serde_json::Value::Null);
    merge(&mut whole, patch);
    let checked = checked(field, whole.to_string())?;
    let merged =
        Payload { items: base.items.clone(), from: base.from.clone(), units_max: base.units_max, ..checked };
    if merged.bytes() > PAYLOAD_MAX_BYTES {
        let expected =
            format!("at most {PAYLOAD_MAX_BYTES} bytes of JSON together with the schedule's items");
        return Err(FieldError::new(field, format!("{} bytes", merged.bytes()), expected));
    }
    Ok(merged)
}

/// Merges a patch over a value. It goes no deeper than what `to_json` lets in.
fn merge(whole: &mut serde_json::Value, patch: serde_json::Value) {
    let serde_json::Value::Object(patch) = patch else {
        *whole = patch;
        return;
    };
    if !whole.is_object() {
        *whole = serde_json::Value::Object(serde_json::Map::new());
    }
    let Some(members) = whole.as_object_mut() else { return };
    for (key, member) in patch {
        if member.is_null() {
            members.remove(&key);
        } else {
            merge(members.entry(key).or_insert(serde_json::Value::Null), member);
        }
    }
}

/// A payload as callers see it. Text that is not JSON, which no check has let in, is shown as text.
pub fn to_message(payload: &Payload) -> Option<Value> {
    if payload.json.is_empty() {
        return None;
    }
    Some(serde_json::from_str(&payload.json).map_or_else(
        |_| Value { kind: Some(Kind::StringValue(payload.json.clone())) },
        |value: serde_json::Value| from_json(&value),
    ))
}

/// A JSON value as a message.
pub fn from_json(value: &serde_json::Value) -> Value {
    let kind = match value {
        serde_json::Value::Null => Kind::NullValue(0),
        serde_json::Value::Bool(truth) => Kind::BoolValue(*truth),
        serde_json::Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        serde_json::Value::String(text) => Kind::StringValue(text.clone()),
        serde_json::Value::Array(items) => {
            Kind::ListValue(ListValue { values: items.iter().map(from_json).collect() })
        }
        serde_json::Value::Object(members) => Kind::StructValue(struct_from_json(members)),
    };
    Value { kind: Some(kind) }
}

/// A JSON object as a message.
pub fn struct_from_json(members: &serde_json::Map<String, serde_json::Value>) -> Struct {
    Struct { fields: members.iter().map(|(key, member)| (key.clone(), from_json(member))).collect() }
}

fn to_json(path: &str, value: &Value, depth: usize) -> Result<serde_json::Value, FieldError> {
    if depth > json::DEPTH_MAX {
        return Err(FieldError::new(path, "", format!("at most {} levels", json::DEPTH_MAX)));
    }
    Ok(match &value.kind {
        None => return Err(FieldError::new(path, "", "a JSON value")),
        Some(Kind::NullValue(_)) => serde_json::Value::Null,
        Some(Kind::BoolValue(truth)) => serde_json::Value::from(*truth),
        Some(Kind::NumberValue(number)) => self::number(path, *number)?,
        Some(Kind::StringValue(text)) => serde_json::Value::from(text.as_str()),
        Some(Kind::ListValue(list)) => {
            let items = list.values.iter().enumerate();
            let items = items.map(|(at, item)| to_json(&format!("{path}[{at}]"), item, depth + 1));
            items.collect::<Result<_, _>>()?
        }
        Some(Kind::StructValue(members)) => {
            let members = members.fields.iter().map(|(key, member)| {
                Ok((key.clone(), to_json(&format!("{path}.{key}"), member, depth + 1)?))
            });
            serde_json::Value::Object(members.collect::<Result<_, FieldError>>()?)
        }
    })
}

fn number(path: &str, number: f64) -> Result<serde_json::Value, FieldError> {
    if !number.is_finite() {
        return Err(FieldError::new(path, number, "a finite number"));
    }
    Ok(json::exact(number).unwrap_or_else(|| serde_json::Value::from(number)))
}
